#include "cli/bench_train.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "cli/bench_model.h"
#include "cli/best_seconds.h"
#include "cli/options.h"
#include "core/clock.h"
#include "core/json.h"
#include "core/random.h"
#include "kernels/cpu/thread_pool.h"
#include "model/network.h"
#include "train/flops.h"
#include "train/trainer.h"

namespace slime::cli {
namespace {

struct TrainOptions {
  BenchModel model;
  int64_t tokens = 4096;
  int64_t sequence_length = 512;
  int64_t prompts = 0;
  int repeats = 3;
  bool recompute = false;
};

/// Sequences of random tokens, all trained. With `prompts` > 0 they are responses to so many
/// prompts, each prompt a quarter of its sequences: what a GRPO step sees.
std::vector<Sample> made_up_samples(const TrainOptions& options, int64_t vocab_size) {
  const int64_t count = std::max<int64_t>(1, options.tokens / options.sequence_length);
  std::vector<Sample> samples(count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t group = options.prompts > 0 ? i % options.prompts : i;
    samples[i].prompt_length = options.prompts > 0 ? options.sequence_length / 4 : 1;
    for (int64_t t = 0; t < options.sequence_length; ++t) {
      const auto stream = static_cast<uint64_t>(t < samples[i].prompt_length ? group : count + i);
      const double draw = uniform(1, stream, static_cast<uint64_t>(t));
      samples[i].tokens.push_back(static_cast<TokenId>(draw * static_cast<double>(vocab_size)));
    }
  }
  return samples;
}

json::object measure(const TrainOptions& options) {
  const SystemClock clock;
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
  const double flops = 3 * train::forward_flops(train::flops_model_of(network->config()), lengths);
  const auto tokens = static_cast<double>(first.num_tokens);
  const MachineRates rates = measure_machine(*network);
  json::object floor = to_json(rates);
  floor["step_seconds"] = flops / rates.flops_per_second;
  floor["reached"] = flops / rates.flops_per_second / step;
  return {{"benchmark", "train-step"},
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
          {"floor", floor}};
}

}  // namespace

int bench_train_step(std::span<const std::string> arguments) {
  TrainOptions options;
  CLI::App app(
      "One training step on made-up tokens: packed forward, loss, backward, clipping, AdamW.",
      "slime bench train-step");
  options.model.add_options(app);
  app.add_option("--tokens", options.tokens, "of a step")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--sequence-length", options.sequence_length, "of each sample")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--prompts", options.prompts, "samples share so many prompts; 0: none")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--repeats", options.repeats, "the best counts")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--recompute", options.recompute, "drop activations and compute them again");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  fmt::print("{}\n", json::serialize(measure(options)));
  return 0;
}

}  // namespace slime::cli
