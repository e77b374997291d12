#include "cli/bench_gpu_train.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/json_lines.h"
#include "cli/options.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/random.h"
#include "engine/workload.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/limits.h"
#include "train/trainer.h"

namespace slime::cli {
namespace {

constexpr std::string_view kTrainPrefix = "train-step-", kFull = "-recompute",
                           kSelective = "-selective";
constexpr double kTrainWeightBound = 0.03;  // of the made-up weights: gradients of ordinary size

struct GpuTrainOptions {
  std::string name;
  std::string file = "bench/gpu/workloads.json";
  int64_t sequences = 8;
  int64_t sequence_length = 2048;
  int64_t micro_batch_tokens = 16384;
  int repeats = 5;
  bool state_on_host = false;
};

/// Sequences of random tokens, all but the first trained, half of them with a positive advantage.
train::TrainBatch made_up_batch(const GpuTrainOptions& options, int64_t vocab_size) {
  std::vector<Sample> samples(static_cast<std::size_t>(options.sequences));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].prompt_length = 1;
    for (int64_t t = 0; t < options.sequence_length; ++t) {
      const double draw = uniform(1, i, static_cast<uint64_t>(t));
      samples[i].tokens.push_back(static_cast<TokenId>(draw * static_cast<double>(vocab_size)));
    }
  }
  train::TrainBatch batch = train::make_supervised_batch(samples);
  for (std::size_t i = 0; i < batch.samples.size(); ++i)
    batch.samples[i].reward = i % 2 == 0 ? 1.0 : -1.0;
  return batch;
}

/// 6 N for the products of each token, forward and backward, and 6 L S H D for causal attention.
double flops_per_token(const model::ModelConfig& config, int64_t parameters, int64_t length) {
  return 6.0 * static_cast<double>(parameters) +
         6.0 * static_cast<double>(config.num_layers * length * config.num_heads * config.head_dim);
}

/// Seconds of each of `repeats` calls; every call is waited for.
template <typename Work>
std::vector<double> timed(model::Network& network, int repeats, const Work& work) {
  const SystemClock clock;
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const auto start = clock.now();
    work();
    network.weights().flat()[0].item();  // sync: the end of the measured work
    seconds.push_back(seconds_between(start, clock.now()));
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

json::object measure(const GpuTrainOptions& options, const model::ModelConfig& config,
                     model::Recompute recompute) {
  const kernels::GpuLimits limits = kernels::measure_gpu_limits();
  kernels::opened_gpu().release_unused_memory();
  const int64_t free_before = kernels::opened_gpu().free_bytes();
  const auto network =
      model::make_uniform_network(config, model::Precision::on_gpu("bfloat16"), kTrainWeightBound);
  const SystemClock clock;
  train::TrainConfig train_config;
  train_config.recompute = recompute;
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
  timed(*network, 2, step);  // allocates, compiles attention
  const std::vector<double> steps = timed(*network, options.repeats, step);
  const std::vector<double> gradients =
      timed(*network, options.repeats, [&] { trainer.accumulate_gradients(batch); });
  const std::vector<double> forwards =
      timed(*network, options.repeats, [&] { trainer.score(batch.samples); });
  if (!skipped.empty()) throw ConfigError("the measured step was skipped: " + skipped);

  const auto tokens = static_cast<double>(options.sequences * options.sequence_length);
  const double flops = tokens * flops_per_token(config, network->weights().num_parameters(),
                                                options.sequence_length);
  const double median = steps[steps.size() / 2];
  kernels::opened_gpu().release_unused_memory();
  return {{"name", options.name},
          {"value", flops / median / 1e12},
          {"unit", "TFLOP/s"},
          {"limit", limits.flops_per_second / 1e12},
          {"fraction", flops / median / limits.flops_per_second},
          {"step_ms", 1e3 * median},
          {"fastest_step_ms", 1e3 * steps.front()},
          {"forward_ms", 1e3 * forwards[forwards.size() / 2]},
          {"gradient_ms", 1e3 * gradients[gradients.size() / 2]},
          {"tokens", tokens},
          {"tokens_per_second", tokens / median},
          {"resident_gib", static_cast<double>(free_before - kernels::opened_gpu().free_bytes()) /
                               (int64_t{1} << 30)},
          {"gpu", kernels::opened_gpu().description()}};
}

}  // namespace

int bench_gpu_train(std::span<const std::string> arguments) {
  GpuTrainOptions options;
  options.name = arguments.front();
  CLI::App app("A GRPO step on the GPU: packed forward, loss, backward, clipping, AdamW.",
               "slime bench " + options.name);
  app.add_option("--workloads-file", options.file, "Where the model's shape is")
      ->capture_default_str();
  app.add_option("--sequences", options.sequences, "Of a step")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 16));
  app.add_option("--sequence-length", options.sequence_length, "Tokens of each")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--max-tokens-per-gpu", options.micro_batch_tokens, "Tokens of a micro-batch")
      ->capture_default_str();
  app.add_option("--repeats", options.repeats, "The median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_flag("--optimizer-cpu-offload", options.state_on_host,
               "Master weights and moments in host memory");
  if (const auto exit_code = parse_options(app, arguments.subspan(1))) return *exit_code;
  std::string size = options.name.substr(kTrainPrefix.size());
  auto recompute = model::Recompute::kNone;
  for (const auto& [ending, how] : {std::pair{kFull, model::Recompute::kFull},
                                    std::pair{kSelective, model::Recompute::kSelective}}) {
    if (!size.ends_with(ending)) continue;
    size.resize(size.size() - ending.size());
    recompute = how;
  }
  const engine::WorkloadFile file = engine::read_workloads(options.file);
  const std::string model = "qwen3-" + size;
  const auto shape = file.models.find(model);
  if (shape == file.models.end())
    throw ConfigError(fmt::format("{}: {} has no model \"{}\"", options.name, options.file, model));
  kernels::open_gpu();
  write_json_line(measure(options, model::parse_model_config(shape->second, model), recompute));
  return 0;
}

}  // namespace slime::cli
