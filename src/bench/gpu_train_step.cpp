#include "bench/gpu_train_step.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "bench/random_tokens.h"
#include "bench/timing.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/limits.h"
#include "train/trainer.h"

namespace slime::bench {
namespace {

/// Sequences of random tokens, all but the first trained, half of them with a positive advantage.
train::TrainBatch made_up_batch(const GpuTrainOptions& options, int64_t vocab_size) {
  std::vector<Sample> samples(static_cast<std::size_t>(options.sequences));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].prompt_length = 1;
    append_random_tokens(samples[i].tokens, options.sequence_length, vocab_size, 1,
                         static_cast<int64_t>(i));
  }
  train::TrainBatch batch = train::make_supervised_batch(samples);
  for (std::size_t i = 0; i < batch.samples.size(); ++i)
    batch.samples[i].reward = i % 2 == 0 ? 1.0 : -1.0;
  return batch;
}

/// Forward and backward: 6 N for the products of each token, N without the experts that it does not
/// visit, and causal attention, where a token meets half of the others.
double flops_per_token(model::Network& network, int64_t length) {
  const model::ModelConfig& config = network.config();
  const model::ExpertsConfig& experts = config.experts;
  const int64_t layers = std::count(experts.in_layer.begin(), experts.in_layer.end(), true);
  const int64_t idle =
      layers * (experts.count - experts.per_token) * 3 * config.hidden_size * experts.width;
  int64_t flops_per_pair = 0;
  for (const model::BlockNeeds& block : network.blocks())
    flops_per_pair += block.costs.flops_per_pair;
  return 6.0 * static_cast<double>(network.weights().num_parameters() - idle) +
         1.5 * static_cast<double>(flops_per_pair * length);
}

/// Seconds of each of `repeats` calls; every call is waited for.
template <typename Work>
std::vector<double> finished_seconds(model::Network& network, int repeats, const Work& work) {
  return sorted_seconds(repeats, [&] {
    work();
    network.weights().flat()[0].item();  // sync: the end of the measured work
  });
}

}  // namespace

void measure_gpu_train_step(const GpuTrainOptions& options) {
  const model::ModelConfig config = read_shape(options.shape);
  kernels::open_gpu();
  const kernels::GpuLimits limits = kernels::measure_gpu_limits();
  kernels::opened_gpu().release_unused_memory();
  const int64_t free_before = kernels::opened_gpu().free_bytes();
  const auto network = make_up_network(config, kTrainingWeightBound);
  const SystemClock clock;
  train::TrainConfig train_config;
  train_config.recompute = options.recompute;
  train_config.adam.on_host = options.state_on_host;
  train_config.lr = {.lr = 1e-6, .style = train::DecayStyle::kConstant};
  train_config.batching.global_batch_size = options.sequences;
  train_config.batching.use_dynamic_batch_size = true;
  train_config.batching.max_tokens_per_gpu = options.micro_batch_tokens;
  train::Trainer trainer(*network, train_config, clock);
  const train::TrainBatch batch = made_up_batch(options, config.vocab_size);

  std::string skipped;
  const auto step = [&] {
    const train::TrainReport report = trainer.train(batch);
    for (const auto& one : report.steps) skipped += one.skipped;
  };
  finished_seconds(*network, 2, step);  // allocates, compiles attention
  const std::vector<double> steps = finished_seconds(*network, options.repeats, step);
  const std::vector<double> gradients =
      finished_seconds(*network, options.repeats, [&] { trainer.accumulate_gradients(batch); });
  const std::vector<double> forwards =
      finished_seconds(*network, options.repeats, [&] { trainer.score(batch.samples); });
  if (!skipped.empty()) throw ConfigError("the measured step was skipped: " + skipped);

  const auto tokens = static_cast<double>(options.sequences * options.sequence_length);
  const double flops = tokens * flops_per_token(*network, options.sequence_length);
  const double step_seconds = median(steps);
  kernels::opened_gpu().release_unused_memory();
  write_json_line(
      {{"name", options.name},
       {"value", flops / step_seconds / 1e12},
       {"unit", "TFLOP/s"},
       {"limit", limits.flops_per_second / 1e12},
       {"fraction", flops / step_seconds / limits.flops_per_second},
       {"step_ms", 1e3 * step_seconds},
       {"fastest_step_ms", 1e3 * steps.front()},
       {"forward_ms", 1e3 * median(forwards)},
       {"gradient_ms", 1e3 * median(gradients)},
       {"tokens", tokens},
       {"tokens_per_second", tokens / step_seconds},
       {"resident_gib",
        static_cast<double>(free_before - kernels::opened_gpu().free_bytes()) / (int64_t{1} << 30)},
       {"gpu", kernels::opened_gpu().description()}});
}

}  // namespace slime::bench
