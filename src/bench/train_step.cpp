/// One training step on made-up tokens (packed forward, loss, backward, clipping, AdamW), beside
/// bench/cpu/train_step_transformers.py.

#include <algorithm>

#include "bench/flags.h"
#include "bench/random_tokens.h"
#include "core/best_seconds.h"
#include "core/clock.h"
#include "core/json_lines.h"
#include "kernels/cpu/thread_pool.h"
#include "model/network.h"
#include "train/flops.h"
#include "train/keep_freed_memory.h"
#include "train/trainer.h"

namespace slime::bench {
namespace {

struct TrainStepOptions {
  ModelOptions model;
  int64_t tokens = 4096;  // of a step
  int64_t sequence_length = 512;
  int64_t prompts = 0;  // samples share so many; 0: none
  int repeats = 3;      // the best counts
  bool recompute = false;
};

/// Sequences of random tokens, all trained. With `prompts` > 0 they are responses to so many
/// prompts, each prompt a quarter of its sequences: what a GRPO step sees.
std::vector<Sample> made_up_samples(const TrainStepOptions& options, int64_t vocab_size) {
  const int64_t count = std::max<int64_t>(1, options.tokens / options.sequence_length);
  std::vector<Sample> samples(count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t group = options.prompts > 0 ? i % options.prompts : i;
    const int64_t prompt = options.prompts > 0 ? options.sequence_length / 4 : 1;
    samples[i].prompt_length = prompt;
    append_random_tokens(samples[i].tokens, prompt, vocab_size, 1, group);
    append_random_tokens(samples[i].tokens, options.sequence_length - prompt, vocab_size, 1,
                         count + i, prompt);
  }
  return samples;
}

void measure_train_step(const TrainStepOptions& options) {
  const SystemClock clock;
  train::keep_freed_memory();  // as `slime train` does
  const auto network = options.model.load();
  train::TrainConfig config;
  config.objective = train::Objective::kSupervised;
  config.recompute = options.recompute ? model::Recompute::kFull : model::Recompute::kNone;
  config.lr = {.lr = 1e-6, .style = train::DecayStyle::kConstant};
  const std::vector<Sample> samples = made_up_samples(options, network->config().vocab_size);
  config.batching.global_batch_size = static_cast<int64_t>(samples.size());
  config.batching.use_dynamic_batch_size = true;
  config.batching.max_tokens_per_gpu = options.tokens;
  train::Trainer trainer(*network, config, clock);
  const train::TrainBatch batch = train::make_supervised_batch(samples);

  const train::TrainReport first = trainer.train(batch);  // allocates, and prepares the kernels
  const double step = best_seconds(options.repeats, [&] { trainer.train(batch); });
  const double gradients =
      best_seconds(options.repeats, [&] { trainer.accumulate_gradients(batch); });
  const double forward = best_seconds(options.repeats, [&] { trainer.score(batch.samples); });
  const auto lengths = batch.total_lengths();
  const double flops = 3 * train::forward_flops(train::flops_model_of(*network), lengths);
  const auto tokens = static_cast<double>(first.num_tokens);
  const MachineRates rates = measure_machine(*network);
  json::object floor = to_json(rates);
  floor["step_seconds"] = flops / rates.flops_per_second;
  floor["reached"] = flops / rates.flops_per_second / step;
  write_json_line({{"benchmark", "train-step"},
                   {"dtype", options.model.dtype},
                   {"threads", kernels::cpu::num_threads()},
                   {"tokens", first.num_tokens},
                   {"computed_tokens", first.num_computed_tokens},
                   {"step_seconds", step},
                   {"tokens_per_second", tokens / step},
                   {"gflops", flops / step / 1e9},
                   {"forward_seconds", forward},
                   {"backward_seconds", gradients - forward},
                   {"optimizer_seconds", step - gradients},
                   {"forward_backward_tokens_per_second", tokens / gradients},
                   {"floor", floor}});
}

}  // namespace

int train_step(const std::string& name, Arguments arguments) {
  TrainStepOptions options;
  Flags flags(
      "One training step on made-up tokens: packed forward, loss, backward, clipping, AdamW.",
      name);
  flags.model(options.model);
  flags.count("--tokens", options.tokens, "of a step");
  flags.range("--sequence-length", options.sequence_length, 2, 1 << 20, "of each sample");
  flags.add("--prompts", options.prompts, "samples share so many prompts; 0: none")
      ->check(CLI::NonNegativeNumber);
  flags.repeats(options.repeats, "the best counts");
  flags.add_flag("--recompute", options.recompute, "drop activations and compute them again");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_train_step(options);
  return 0;
}

}  // namespace slime::bench
