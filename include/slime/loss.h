/* A loss of your own as a shared library: slime train --loss-type custom_loss --custom-loss-library FILE.so
 *
 *   g++ -O3 -shared -fPIC -I include my_loss.cpp -o my_loss.so
 *
 * The library defines the two functions at the end of this file. slime_loss is called once for each micro-batch, on one
 * thread, in the program's own process: what it breaks, it breaks for the run. examples/custom_loss has one to start from.
 *
 * A micro-batch has R samples (responses) and T response tokens, end to end without padding: sample r owns the tokens
 * [starts[r], starts[r + 1]). A response may be empty. Log-probs are natural logarithms at the rollout's temperature.
 *
 * Loss and metrics are sums over the tokens of the micro-batch, each token with its weight: weights[t] is 0 where a tool wrote
 * the token, and else 1 divided by the trained tokens of the whole rollout (1 with --calculate-per-token-loss). The trainer
 * adds them up over micro-batches and ranks and divides once, so that no result depends on how a batch was divided.
 */
#ifndef SLIME_LOSS_H
#define SLIME_LOSS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLIME_LOSS_VERSION 1

/* Valid during the call. NULL: this run has no such column. */
struct slime_loss_input {
  int64_t num_samples; /* R */
  int64_t num_tokens;  /* T */

  /* One number for each sample. */
  const int64_t* starts; /* [R + 1] */
  const int64_t* prompt_lengths;
  const int64_t* sample_indices; /* over the whole run */
  const int64_t* group_indices;  /* of the prompt */
  const double* rewards;         /* after group normalisation */
  const double* raw_rewards;

  /* One number for each token. */
  const int64_t* token_ids;
  const uint8_t* loss_masks; /* 1: the policy wrote the token and it is trained */
  const double* weights;     /* see above */
  const double* log_probs;   /* of the weights that are trained */
  const double* entropies;
  const double* old_log_probs;     /* of the policy before this rollout step's first update */
  const double* ref_log_probs;     /* with --use-kl-loss or --kl-coef */
  const double* rollout_log_probs; /* as the engine reported them */
  const double* teacher_log_probs; /* with --use-opd */
  const double* values;            /* of the critic */
  const double* advantages;
  const double* returns;

  /* The value of a flag that is a number or a switch, by its name with underscores ("eps_clip"); `otherwise` where it has
   * none. */
  double (*flag)(const void* context, const char* name, double otherwise);
  const void* flags; /* its context */
};

/* All zeros at the call, but for what is said. */
struct slime_loss_output {
  double loss;
  double* log_prob_gradient; /* [T]: of the loss, by log_probs */
  double* entropy_gradient;  /* [T]: by entropies; NULL without --entropy-coef */
  /* Reports a sum: it becomes train/NAME. */
  void (*metric)(void* context, const char* name, double sum);
  void* metrics;   /* its context */
  char error[512]; /* why the result is not 0 */
};

/* SLIME_LOSS_VERSION of the header that the library was built with. */
int32_t slime_loss_version(void);

/* 0: done. Anything else, and numbers that are not finite, end the run with the reason. */
int32_t slime_loss(const struct slime_loss_input* in, struct slime_loss_output* out);

#ifdef __cplusplus
}
#endif

#endif
