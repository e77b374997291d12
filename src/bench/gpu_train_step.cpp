/// A training step of GRPO on the GPU, or on several of them: packed forward, loss, backward,
/// clipping, AdamW, in a shape of bench/gpu/workloads.json.

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "bench/device_profile.h"
#include "bench/flags.h"
#include "bench/harness.h"
#include "bench/made_up_adapters.h"
#include "bench/random_tokens.h"
#include "comm/ordered_sum.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/limits.h"
#include "kernels/trace.h"
#include "train/trainer.h"

namespace slime::bench {
namespace {

struct GpuTrainOptions {
  std::string name;  // of the printed line
  ShapeOptions shape;
  model::Recompute recompute = model::Recompute::kNone;
  int64_t sequences = 8;  // for each device
  int64_t sequence_length = 2048;
  int64_t micro_batch_tokens = 16384;
  int repeats = 5;  // the median counts
  bool state_on_host = false;
  int64_t lora_rank = 0;  // of an adapter that is trained in the place of the weights; 0: none
  bool is_exact = false;  // forward passes in training arithmetic (docs/exact.md)
  bool is_deterministic =
      false;                 // attention's gradients in one order, as with --deterministic-mode
  bool has_profile = false;  // what fills a step (bench/device_profile.h), a line of each rank
  RankOptions ranks;
};

/// In which a mesh has told of what has ended.
constexpr std::chrono::milliseconds kLookTime{200};

/// Sequences of random tokens, all but the first trained, half of them with a positive advantage.
train::TrainBatch made_up_batch(const GpuTrainOptions& options, int64_t sequences,
                                int64_t vocab_size) {
  std::vector<Sample> samples(static_cast<std::size_t>(sequences));
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
double flops_per_token(model::Network& network, const comm::Mesh& mesh, int64_t length) {
  const model::ModelConfig& config = network.config();
  const model::ExpertsConfig& experts = config.experts;
  const int64_t layers = std::count(experts.in_layer.begin(), experts.in_layer.end(), true);
  const int64_t idle =
      layers * (experts.count - experts.per_token) * 3 * config.hidden_size * experts.width;
  double flops_per_pair = 0, parameters = 0;  // of this rank, each once
  for (const model::BlockNeeds& block : network.blocks())
    flops_per_pair += static_cast<double>(block.costs.flops_per_pair);
  for (const model::NamedWeight& weight : network.weights().tensors()) {
    const bool is_here = !weight.slices.is_whole() || mesh.at().tp == 0;
    if (is_here && (!weight.is_on_two_stages || mesh.at().pp == 0))
      parameters += static_cast<double>(c10::multiply_integers(weight.shape));
  }
  flops_per_pair = comm::sum(mesh.pp(), flops_per_pair, "counting operations");
  parameters = comm::sum(mesh.tp(), comm::sum(mesh.pp(), parameters, "counting parameters"),
                         "counting parameters");
  return 6.0 * (parameters - static_cast<double>(idle)) +
         1.5 * flops_per_pair * static_cast<double>(length);
}

/// What rank 0's collectives took, by what they are for.
class CollectiveTimes final {
 public:
  void add(double milliseconds, const char* what) {
    const std::lock_guard lock(mutex_);
    milliseconds_[what] += milliseconds;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    milliseconds_.clear();
  }
  /// Of `all` milliseconds.
  json::object shares(double all) {
    const std::lock_guard lock(mutex_);
    json::object shares;
    for (const auto& [what, time] : milliseconds_) shares[what] = time / all;
    return shares;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, double> milliseconds_;  // guarded by mutex_
};

/// Seconds of each of `repeats` calls; every call is waited for.
template <typename Work>
std::vector<double> finished_seconds(model::Network& network, int repeats, const Work& work) {
  return sorted_seconds(repeats, [&] {
    work();
    network.weights().flat()[0].item();  // sync: the end of the measured work
  });
}

/// A line of each rank, one after another.
template <typename Work>
void profile(const GpuTrainOptions& options, const comm::Mesh& mesh, model::Network& network,
             const Work& work) {
  constexpr int kSteps = 2;
  mesh.world().barrier("tracing");
  kernels::begin_trace(/*with_gpu=*/true);
  finished_seconds(network, kSteps, work);
  const auto traced = kernels::end_trace_of_gpu();
  for (int rank = 0; rank < mesh.world().size(); ++rank) {
    mesh.world().barrier("telling");
    if (rank != mesh.rank()) continue;
    write_json_line({{"name", options.name},
                     {"layout", options.ranks.layout},
                     {"rank", rank},
                     {"profile", device_profile(traced, kSteps)}});
  }
}

void measure_gpu_train_step(const GpuTrainOptions& options) {
  const model::ModelConfig config = read_shape(options.shape);
  CollectiveTimes times;
  RankProcesses ranks(
      options.ranks, [&](double milliseconds, const char* what) { times.add(milliseconds, what); });
  const comm::Mesh& mesh = ranks.mesh();
  const int devices = mesh.sizes().world_size();
  const kernels::GpuLimits limits = kernels::measure_gpu_limits();
  kernels::opened_gpu().release_unused_memory();
  const int64_t free_before = kernels::opened_gpu().free_bytes();
  at::manual_seed(0);  // data-parallel ranks have the same weights
  const auto network = make_up_network(config, kTrainingWeightBound, mesh);
  if (options.lora_rank > 0) add_made_up_adapter(*network, options.lora_rank, mesh);
  const SystemClock clock;
  train::TrainConfig train_config;
  train_config.recompute = options.recompute;
  train_config.in_training_arithmetic = options.is_exact;
  train_config.orders_backward = options.is_deterministic;
  train_config.adam.on_host = options.state_on_host;
  train_config.lr = {.lr = 1e-6, .style = train::DecayStyle::kConstant};
  const int64_t sequences = options.sequences * devices;
  train_config.batching.global_batch_size = sequences;
  train_config.batching.use_dynamic_batch_size = true;
  train_config.batching.max_tokens_per_gpu = options.micro_batch_tokens * mesh.sizes().cp;
  train_config.batching.dp = mesh.sizes().dp;
  train::Trainer trainer(*network, train_config, clock, {}, mesh);
  const train::TrainBatch batch = made_up_batch(options, sequences, config.vocab_size);
  const train::BatchShare share = trainer.divide(batch).at(static_cast<std::size_t>(mesh.at().dp));

  std::string skipped;
  const auto step = [&] {
    const train::TrainReport report = devices == 1 ? trainer.train(batch) : trainer.train(share);
    for (const auto& one : report.steps) skipped += one.skipped;
  };
  finished_seconds(*network, 2, step);  // allocates, compiles attention
  std::this_thread::sleep_for(kLookTime);
  times.clear();
  const std::vector<double> steps = finished_seconds(*network, options.repeats, step);
  double all_steps = 0;
  for (const double seconds : steps) all_steps += seconds;
  std::this_thread::sleep_for(kLookTime);
  json::object communication = times.shares(1e3 * all_steps);
  if (options.has_profile) profile(options, mesh, *network, step);
  const std::vector<double> gradients = finished_seconds(*network, options.repeats, [&] {
    devices == 1 ? trainer.accumulate_gradients(batch) : trainer.accumulate_gradients(share);
  });
  std::vector<double> forwards{0};
  if (devices == 1)
    forwards = finished_seconds(*network, options.repeats, [&] { trainer.score(batch.samples); });
  if (!skipped.empty()) throw ConfigError("the measured step was skipped: " + skipped);

  const auto tokens = static_cast<double>(sequences * options.sequence_length);
  const double flops = tokens * flops_per_token(*network, mesh, options.sequence_length) / devices;
  const double step_seconds = median(steps);
  kernels::opened_gpu().release_unused_memory();
  mesh.world().barrier("leaving together");
  if (mesh.rank() > 0) return;
  json::object line{
      {"name", options.name},
      {"value", flops / step_seconds / 1e12},
      {"unit", devices == 1 ? "TFLOP/s" : "TFLOP/s of a device"},
      {"limit", limits.flops_per_second / 1e12},
      {"fraction", flops / step_seconds / limits.flops_per_second},
      {"step_ms", 1e3 * step_seconds},
      {"fastest_step_ms", 1e3 * steps.front()},
      {"gradient_ms", 1e3 * median(gradients)},
      {"tokens", tokens},
      {"tokens_per_second", tokens / step_seconds},
      {"resident_gib",
       static_cast<double>(free_before - kernels::opened_gpu().free_bytes()) / (int64_t{1} << 30)},
      {"gpu", kernels::opened_gpu().description()}};
  if (options.lora_rank > 0) line["lora_rank"] = options.lora_rank;
  if (options.is_exact) line["exact"] = true;
  if (options.is_deterministic) line["deterministic"] = true;
  if (devices == 1) {
    line["forward_ms"] = 1e3 * median(forwards);
  } else {
    line["devices"] = devices;
    line["layout"] = options.ranks.layout;
    line["communication"] = std::move(communication);
  }
  write_json_line(line);
}

}  // namespace

int gpu_train_step(const std::string& name, Arguments arguments) {
  GpuTrainOptions options;
  options.name = name;
  const std::map<std::string, model::Recompute> recomputes{
      {"none", model::Recompute::kNone},
      {"full", model::Recompute::kFull},
      {"selective", model::Recompute::kSelective}};
  Flags flags("A GRPO step on the GPU: packed forward, loss, backward, clipping, AdamW.", name);
  flags.shape(options.shape);
  flags.add_option("--recompute", options.recompute, "none, full or selective")
      ->transform(CLI::CheckedTransformer(recomputes));
  flags.range("--sequences", options.sequences, 1, 1 << 16, "Of a step");
  flags.range("--sequence-length", options.sequence_length, 2, 1 << 20, "Tokens of each");
  flags.add("--max-tokens-per-gpu", options.micro_batch_tokens, "Tokens of a micro-batch");
  flags.repeats(options.repeats, "The median counts");
  flags.range("--lora-rank", options.lora_rank, 0, 256,
              "Trains an adapter of this rank beside all linear layers; 0: all weights");
  flags.add_flag("--optimizer-cpu-offload", options.state_on_host,
                 "Master weights and moments in host memory");
  flags.add_flag("--exact", options.is_exact,
                 "Forward passes in the order of sums of --true-on-policy, of one device");
  flags.add_flag("--deterministic", options.is_deterministic,
                 "Attention's gradients in one order, as with --deterministic-mode");
  flags.add_flag("--profile", options.has_profile,
                 "What fills a step: kernels, collectives, gaps, a line of each rank");
  flags.ranks(options.ranks, name, arguments,
              "Several GPUs of this machine: dp2, tp2-sp, pp2-chunks2, cp2, dp2-cp2, ...; "
              "--sequences are for each of them");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  if (options.is_exact && (options.ranks.layout != "1" || options.lora_rank > 0))
    throw ConfigError(
        "--exact: one device that trains all weights computes so; leave --layout and "
        "--lora-rank out");
  measure_gpu_train_step(options);
  return 0;
}

}  // namespace slime::bench
