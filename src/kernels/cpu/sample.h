#pragma once

/// Sampling from one row of logits on the CPU: softmax statistics, the draw, its log-prob, and the
/// best few tokens.
///
/// With u = logits / temperature in float32:  logprob_v = u_v - logsumexp(u) over the full
/// vocabulary. Accuracy: log-probs are within 1e-6 of double arithmetic (blocks of 512 are summed
/// in float32, the blocks in double). The draw inverts the cumulative distribution in the order of
/// token ids (or of the kept ones, best first), so one uniform number decides it.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace slime::kernels {

struct SampleOptions {
  double temperature = 1.0;  // > 0
  bool greedy = false;       // the largest logit; log-probs at `temperature`
  int64_t top_k = -1;        // -1: all
  double top_p = 1.0;
  double min_p = 0.0;
  double uniform = 0.5;  // in (0, 1)
  /// Report the ids that survive top-k, top-p and min-p, and renormalise the log-prob over them.
  bool keeps_ids = false;
  bool keeps_log_probs = false;         // with those, their log-probs among themselves
  int64_t num_top = 0;                  // best tokens to report
  std::vector<int32_t> asked_ids = {};  // to report, whatever they are
};

struct SampledToken {
  int32_t id = 0;
  float log_prob = 0;
  /// The engine's: as if no constraint had made tokens impossible. Only where one has.
  float free_log_prob = 0;
  std::vector<int32_t> kept_ids;               // best first; empty without keeps_ids or truncation
  std::vector<float> kept_log_probs;           // of kept_ids; with keeps_log_probs
  std::vector<std::pair<float, int32_t>> top;  // (log-prob, id), best first
  std::vector<std::pair<float, int32_t>> asked;  // of SampleOptions::asked_ids, in their order
};

/// Kept ids are those with rank < top_k, cumulative probability before them <= top_p, and
/// probability >= min_p times the largest (SGLang's rule); ranks break ties by id. Logits may be
/// -infinity. A row of NaNs gives log-prob NaN and id 0: the caller must look.
SampledToken sample_row(std::span<const float> logits_V, const SampleOptions& options);

/// What sample_row says of a token that another device drew from these logits with these options.
/// Where its rounding kept `id` and this one does not, `id` is the last of the kept ids.
SampledToken report_row(std::span<const float> logits_V, int32_t id, const SampleOptions& options);

/// True when not all tokens of a row can be sampled (nor is it greedy).
bool is_truncated(const SampleOptions& options, int64_t vocab_size);

/// Log-prob of a given token, with the best ones when num_top > 0, and with those of `asked_ids`.
SampledToken score_row(std::span<const float> logits_V, int32_t id, double temperature,
                       int64_t num_top, std::span<const int32_t> asked_ids = {});

}  // namespace slime::kernels
