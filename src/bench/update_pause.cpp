#include "bench/update_pause.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "bench/decoding_sequences.h"
#include "bench/engines_apart.h"
#include "bench/flags.h"
#include "bench/harness.h"
#include "bench/made_up_adapters.h"
#include "bench/made_up_directory.h"
#include "cluster/local_process.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/limits.h"
#include "model/adapters.h"
#include "roles/engine_workers.h"
#include "roles/run_adapters.h"

namespace slime::bench {
namespace {

/// Steps before the first update: batch sizes are recorded, and each sequence decodes.
constexpr int64_t kStepsBefore = 30;
/// The bar at 256 sequences of 4B on one H200.
constexpr double kBarMilliseconds = 5;
/// The bar for 4B to come from one device to another.
constexpr double kTransferBarMilliseconds = 40;
/// The bar for an adapter to be in use.
constexpr double kAdapterBarMilliseconds = 50;
constexpr int64_t kPrefillTokens = 8192;

engine::RunningRequests running_of(const std::string& mode) {
  if (mode == "keep") return engine::RunningRequests::kKeep;
  if (mode == "recompute") return engine::RunningRequests::kRecompute;
  if (mode == "interrupt") return engine::RunningRequests::kAbort;
  throw ConfigError(fmt::format("--modes {}: keep, recompute or interrupt", mode));
}

int64_t longest_context(const UpdatePauseOptions& options, const model::ModelConfig& shape) {
  // Steps that run while weights are brought come on top.
  return std::min(shape.max_positions, options.prompt_tokens + kStepsBefore +
                                           4 * options.updates * options.steps_per_update + 1000);
}

void print(json::object line, const UpdatePauseOptions& options, double floor_ms) {
  const bool is_gpu = options.device == "cuda";
  line["name"] = options.name;
  line["floor"] = floor_ms;
  const bool is_whole = options.lora_rank == 0;
  if (line["mode"] == "keep" && is_gpu) line["bar_ms"] = kBarMilliseconds;
  if (options.engines_apart > 0 && is_gpu && is_whole)
    line["transfer_bar_ms"] = kTransferBarMilliseconds;
  if (!is_whole && is_gpu) line["in_use_bar_ms"] = kAdapterBarMilliseconds;
  if (!is_whole) line["lora_rank"] = options.lora_rank;
  line["model"] = options.shape.model;
  line["device"] = is_gpu ? kernels::opened_gpu().description() : "cpu";
  write_json_line(line);
}

double copy_floor_ms(const UpdatePauseOptions& options, int64_t bytes) {
  if (options.device != "cuda") return 0;
  return 2e3 * static_cast<double>(bytes) / kernels::measure_gpu_limits().copy_bytes_per_second;
}

void measure_here(const UpdatePauseOptions& options) {
  const model::ModelConfig shape = read_shape(options.shape);
  const auto running = make_up_network_on(options.device, shape);
  const bool is_whole = options.lora_rank == 0;
  if (!is_whole) add_made_up_adapter(*running, options.lora_rank);
  const auto fresh =
      is_whole ? make_up_network_on(options.device, shape) : with_made_up_adapter(*running);
  const auto bytes = static_cast<int64_t>(fresh->trained().flat().nbytes());
  const SystemClock clock;
  const double floor_ms = copy_floor_ms(options, bytes);
  engine::EngineConfig config;
  config.max_running_requests = options.sequences;
  config.max_prefill_tokens = kPrefillTokens;
  config.context_length = longest_context(options, shape);
  config.stages_weights = true;
  config.kv_cache_bytes = cache_bytes_on(options.device);
  if (is_whole && options.device == "cuda") config.kv_cache_bytes -= bytes;
  engine::Engine engine(*running, config, clock);
  for (const std::string& mode : options.modes) {
    print(measure_update_pause(engine_here(engine, *fresh, mode), options, mode), options,
          floor_ms);
  }
}

std::unique_ptr<model::Network> with_the_same_weights(model::Network& trained,
                                                      const model::ModelConfig& shape,
                                                      bool is_gpu) {
  const at::ScalarType type = trained.weights().flat().scalar_type();
  auto network = model::make_blank_network(shape, {.weights = type,
                                                   .activations = is_gpu ? type : at::kFloat,
                                                   .device = trained.weights().flat().device()});
  network->weights().copy_from(trained.weights());
  return network;
}

/// As the engines of a run with --rollout-num-gpus; the trained weights are made up.
void measure_apart(const UpdatePauseOptions& options) {
  const model::ModelConfig shape = read_shape(options.shape);
  const bool is_gpu = options.device == "cuda";
  const bool is_whole = options.lora_rank == 0;
  // Engines read the weights beside which they get adapters.
  const MadeUpDirectory directory({.shape = options.shape, .has_weights = !is_whole});
  roles::EngineWorkersConfig config = config_of({.shape = options.shape,
                                                 .device = options.device,
                                                 .engines = options.engines_apart,
                                                 .devices_before = 1,
                                                 .sequences = options.sequences,
                                                 .prompt_tokens = options.prompt_tokens,
                                                 .context = longest_context(options, shape),
                                                 .lora_rank = options.lora_rank},
                                                directory);
  const auto trained = make_up_network_on(options.device, shape);
  if (!is_whole) roles::add_run_adapters(config.start.config, *trained, "");
  const auto bytes = static_cast<int64_t>(trained->trained().flat().nbytes());
  const double floor_ms = copy_floor_ms(options, bytes);
  const SystemClock clock;
  cluster::LocalLauncher launcher;
  for (const std::string& mode : options.modes) {
    config.running = running_of(mode);
    const auto published =
        is_whole ? with_the_same_weights(*trained, shape, is_gpu) : with_made_up_adapter(*trained);
    roles::EngineWorkers engines(config, *published, trained.get(), 0, launcher, clock);
    std::vector<std::string> said;
    engines.tell_by([&said](const std::string& line) { said.push_back(line); });
    const UpdatedEngine updated{
        .client = engines.client(),
        .max_request_tokens = engines.max_request_tokens(),
        .vocab_size = shape.vocab_size,
        .weight_bytes = bytes,
        .update = [&](WeightVersion version) { engines.update_weights(version, nullptr); },
        .copy_seconds = [&engines] { return engines.last_copy_seconds(); },
        .transfer_seconds = [&engines] { return engines.last_transfer_seconds(); }};
    json::object line = measure_update_pause(updated, options, mode);
    engines.tell_by(nullptr);
    line["engines_apart"] = options.engines_apart;
    line["said"] = json::value_from(said);
    print(std::move(line), options, floor_ms);
  }
}

}  // namespace

UpdatedEngine engine_here(engine::Engine& engine, model::Network& fresh, const std::string& mode) {
  return {
      .client = engine,
      .max_request_tokens = engine.max_request_tokens(),
      .vocab_size = fresh.config().vocab_size,
      .weight_bytes = static_cast<int64_t>(fresh.trained().flat().nbytes()),
      .update =
          [&engine, &fresh, running = running_of(mode)](WeightVersion version) {
            engine::or_throw(engine.update_weights(
                {.version = version, .source = engine::FromNetwork{&fresh}, .running = running}));
          },
      .copy_seconds = [&engine] { return engine.last_copy_seconds(); },
      .transfer_seconds = nullptr};
}

json::object measure_update_pause(const UpdatedEngine& engine, const UpdatePauseOptions& options,
                                  const std::string& mode) {
  const SystemClock clock;
  engine::or_throw(engine.client.flush_cache());
  // Bringing the weights takes steps too: more room than the counted ones need.
  const int64_t room = engine.max_request_tokens - options.prompt_tokens;
  DecodingSequences decoding(engine.client, clock,
                             {.sequences = options.sequences,
                              .prompt_tokens = options.prompt_tokens,
                              .max_new_tokens = room,
                              .vocab_size = engine.vocab_size,
                              .adapter = {}});
  decoding.wait_for_steps(kStepsBefore);
  std::vector<double> copies, calls, transfers, waits;
  WeightVersion version = engine.client.weight_version();
  for (int64_t i = 0; i < options.updates; ++i) {
    const auto start = clock.now();
    engine.update(++version);
    calls.push_back(1e3 * seconds_between(start, clock.now()));
    copies.push_back(1e3 * engine.copy_seconds());
    if (engine.transfer_seconds) transfers.push_back(1e3 * engine.transfer_seconds());
    decoding.wait_for_steps(options.steps_per_update);
    waits.push_back(1e3 * seconds_between(start, decoding.first_token_of(version)));
  }
  decoding.stop();
  const std::vector<double> pauses = pauses_ms(decoding.gaps());
  json::object line{{"mode", mode},
                    {"value", median(pauses)},
                    {"unit", "ms"},
                    {"worst_ms", largest(pauses)},
                    {"updates", pauses.size()},
                    {"in_use_ms", median(waits)},
                    {"worst_in_use_ms", largest(waits)},
                    {"normal_step_ms", normal_step_ms(decoding.gaps())},
                    {"copy_ms", median(copies)},
                    {"worst_copy_ms", largest(copies)},
                    {"call_ms", median(calls)},
                    {"bytes_copied", engine.weight_bytes},
                    {"sequences", options.sequences},
                    {"pauses_ms", json::value_from(pauses)}};
  if (!transfers.empty()) {
    line["transfer_ms"] = median(transfers);
    line["worst_transfer_ms"] = largest(transfers);
    line["transfer_gb_per_second"] =
        static_cast<double>(engine.weight_bytes) * 1e-6 / std::max(median(transfers), 1e-6);
  }
  return line;
}

int update_pause(const std::string& name, Arguments arguments) {
  UpdatePauseOptions options;
  options.name = name;
  Flags flags("How long generation pauses for new weights.", name);
  flags.shape(options.shape);
  flags.device(options.device, "cuda or cpu; the size \"tiny\" is made for the CPU");
  flags.list("--modes", options.modes, "keep, recompute, interrupt; separated by commas");
  flags.count("--sequences", options.sequences, "That decode together");
  flags.count("--prompt-tokens", options.prompt_tokens, "Of each");
  flags.count("--steps-per-update", options.steps_per_update, "Of the engine");
  flags.count("--updates", options.updates, "Of each mode");
  flags.range("--engines-apart", options.engines_apart, 0, 64,
              "In processes of their own, each on a GPU after the first; 0: one in this process");
  flags.range("--lora-rank", options.lora_rank, 0, 256,
              "An adapter of this rank beside all linear layers is new, not the weights");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  for (const std::string& mode : options.modes) running_of(mode);
  if (options.engines_apart > 0) {
    measure_apart(options);
  } else {
    measure_here(options);
  }
  return 0;
}

}  // namespace slime::bench
