/// Time until requests of an engine that decodes can take a new adapter: from a trainer on the same
/// device, from the host's memory, from a directory.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "bench/decoding_sequences.h"
#include "bench/flags.h"
#include "bench/harness.h"
#include "bench/made_up_adapters.h"
#include "bench/random_tokens.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "core/temporary_folder.h"
#include "engine/engine.h"
#include "engine/served_adapters.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/locked_pages.h"
#include "model/adapter_files.h"

namespace slime::bench {
namespace {

struct AdapterUpdateOptions {
  std::string name;
  ShapeOptions shape{.model = "qwen3-8b"};
  std::string device = "cuda";
  std::vector<std::string> sources{"trainer", "host", "directory"};
  int64_t rank = 32;
  int64_t sequences = 32;  // that decode with another adapter
  int64_t prompt_tokens = 256;
  int64_t first_prompt_tokens = 16;  // of the request that takes the new one
  int64_t steps_per_update = 20;
  int64_t updates = 20;  // of each source
};

constexpr int64_t kMostAdapters = 4;
constexpr int64_t kStepsAtFirst = 30;   // batch sizes are recorded
constexpr int64_t kUpdatesAtFirst = 2;  // memory is allocated
constexpr const char* kRunning = "running";
constexpr const char* kNew = "new";

/// Milliseconds that a source may take on one H200; 0: there is no bar.
double bar_of(const std::string& source) {
  if (source == "trainer") return 50;
  return source == "host" ? 20 : 100;
}

/// The adapters that become new, and where each is before. One class because all lie beside one network.
class AdapterSources final {
 public:
  AdapterSources(model::Network& network, const AdapterUpdateOptions& options)
      : network_(network),
        trained_(make_up_adapter(network, options.rank)),
        host_N_(trained_->weights().flat().cpu()) {
    if (options.device == "cuda") locked_.emplace(host_N_);
    if (std::ranges::find(options.sources, "directory") != options.sources.end())
      model::write_adapter(folder_.path(), *trained_);
  }

  int64_t bytes() const { return static_cast<int64_t>(host_N_.nbytes()); }

  /// In `adapters` under this name when it returns.
  void bring(const std::string& source, engine::ServedAdapters& adapters, const char* name) const {
    const at::NoGradGuard no_grad;
    if (source == "directory") {
      engine::or_throw(adapters.load(name, folder_.path().string(), /*is_pinned=*/true,
                                     /*replaces=*/true));
      return;
    }
    auto tensors = std::make_shared<model::AdapterTensors>(network_.config(), network_.weights(),
                                                           trained_->form(), comm::Mesh::single());
    const Tensor to_N = tensors->weights().flat();
    to_N.copy_(source == "trainer" ? trained_->weights().flat() : host_N_, /*non_blocking=*/true);
    engine::or_throw(adapters.put(name, std::move(tensors)));
  }

 private:
  model::Network& network_;
  const std::shared_ptr<model::AdapterTensors> trained_;
  const Tensor host_N_;
  std::optional<kernels::LockedPages> locked_;
  const TemporaryFolder folder_{"slime-bench"};
};

/// Returns at the first token of a request that names `adapter`.
void wait_for_first_token(engine::EngineClient& engine, const char* adapter,
                          const AdapterUpdateOptions& options, int64_t vocab_size, int64_t number) {
  engine::GenerateRequest request;
  append_random_tokens(request.input_ids, options.first_prompt_tokens, vocab_size, 11, number);
  request.sampling.max_new_tokens = 1;
  request.sampling.ignore_eos = true;
  request.adapter = adapter;
  auto ended = std::make_shared<std::promise<std::string>>();
  engine.submit(std::move(request), [ended](const engine::GenerateUpdate& update) {
    if (!update.finish) return;
    const bool is_failure = update.finish->kind == engine::FinishReason::Kind::kAbort;
    ended->set_value(is_failure ? update.finish->message : "");
  });
  const std::string failure = ended->get_future().get();
  if (!failure.empty()) throw ConfigError("a request of the new adapter failed: " + failure);
}

/// In milliseconds, of each update.
struct AdapterUpdateTimes {
  std::vector<double> in_use;       // until the first token with it
  std::vector<double> loaded;       // of that until the engine has it
  std::vector<double> longest_gap;  // between two steps of those that decode
};

json::object adapter_update_line(const AdapterUpdateOptions& options, const std::string& source,
                                 const AdapterUpdateTimes& times, double first_token_ms,
                                 double step_ms) {
  const bool is_gpu = options.device == "cuda";
  json::object line{{"name", options.name},
                    {"source", source},
                    {"value", median(times.in_use)},
                    {"unit", "ms"},
                    {"worst_ms", largest(times.in_use)},
                    {"loaded_ms", median(times.loaded)},
                    {"worst_loaded_ms", largest(times.loaded)},
                    {"first_token_ms", first_token_ms},
                    {"normal_step_ms", step_ms},
                    {"longest_gap_ms", median(times.longest_gap)},
                    {"worst_gap_ms", largest(times.longest_gap)},
                    {"pause_ms", std::max(0.0, median(times.longest_gap) - step_ms)},
                    {"updates", static_cast<int64_t>(times.in_use.size())},
                    {"sequences", options.sequences},
                    {"lora_rank", options.rank},
                    {"model", options.shape.model}};
  if (is_gpu) line["bar_ms"] = bar_of(source);
  line["device"] = is_gpu ? kernels::opened_gpu().description() : "cpu";
  return line;
}

/// One JSON line for each source.
void measure_adapter_updates(const AdapterUpdateOptions& options) {
  const model::ModelConfig shape = read_shape(options.shape);
  const auto network = make_up_network_on(options.device, shape);
  const SystemClock clock;
  const AdapterSources made_up(*network, options);
  engine::ServedAdapters adapters(*network, kMostAdapters);
  made_up.bring("trainer", adapters, kRunning);
  const auto num_sources = static_cast<int64_t>(options.sources.size());
  engine::EngineConfig config;
  config.max_running_requests = options.sequences + 1;
  // Steps that run while an adapter is brought come on top.
  config.context_length =
      std::min(shape.max_positions, options.prompt_tokens + kStepsAtFirst +
                                        4 * num_sources * (2 * options.updates + kUpdatesAtFirst) *
                                            options.steps_per_update +
                                        4000);
  config.adapters = &adapters;
  config.kv_cache_bytes = cache_bytes_on(options.device) - kMostAdapters * made_up.bytes();
  engine::Engine engine(*network, config, clock);
  adapters.change_with(engine);
  DecodingSequences decoding(engine, clock,
                             {.sequences = options.sequences,
                              .prompt_tokens = options.prompt_tokens,
                              .max_new_tokens = engine.max_request_tokens() - options.prompt_tokens,
                              .vocab_size = shape.vocab_size,
                              .adapter = kRunning});
  decoding.wait_for_steps(kStepsAtFirst);
  int64_t num_requests = 0;
  const auto first_token = [&](const char* adapter) {
    const auto start = clock.now();
    wait_for_first_token(engine, adapter, options, shape.vocab_size, ++num_requests);
    return 1e3 * seconds_between(start, clock.now());
  };
  for (const std::string& source : options.sources) {
    AdapterUpdateTimes times;
    std::vector<double> first_tokens;
    for (int64_t i = -kUpdatesAtFirst; i < options.updates; ++i) {
      const auto start = clock.now();
      made_up.bring(source, adapters, kNew);
      const double loaded_ms = 1e3 * seconds_between(start, clock.now());
      const double in_use_ms = loaded_ms + first_token(kNew);
      decoding.wait_for_steps(2);  // the gap behind that step is over
      double longest = 0;
      for (const StepGap& gap : decoding.gaps_since(start))
        longest = std::max(longest, 1e3 * gap.seconds);
      decoding.wait_for_steps(options.steps_per_update);
      const double known_ms = first_token(kNew);
      decoding.wait_for_steps(options.steps_per_update);
      if (i < 0) continue;
      times.in_use.push_back(in_use_ms);
      times.loaded.push_back(loaded_ms);
      times.longest_gap.push_back(longest);
      first_tokens.push_back(known_ms);
    }
    json::object line = adapter_update_line(options, source, times, median(first_tokens),
                                            normal_step_ms(decoding.gaps()));
    line["bytes"] = made_up.bytes();
    write_json_line(line);
  }
  decoding.stop();
}

}  // namespace

int adapter_updates(const std::string& name, Arguments arguments) {
  AdapterUpdateOptions options;
  options.name = name;
  Flags flags("How long a new adapter takes until requests of an engine that decodes take it.",
              name);
  flags.shape(options.shape);
  flags.device(options.device, "cuda or cpu; the size \"tiny\" is made for the CPU");
  flags
      .list("--sources", options.sources,
            "trainer (on the same device), host (its memory), directory (of PEFT); separated by "
            "commas")
      ->check(CLI::IsMember({"trainer", "host", "directory"}));
  flags.range("--lora-rank", options.rank, 1, 256, "Of all adapters, beside all linear layers");
  flags.count("--sequences", options.sequences, "That decode together, with another adapter");
  flags.count("--prompt-tokens", options.prompt_tokens, "Of each");
  flags.count("--first-prompt-tokens", options.first_prompt_tokens,
              "Of the request that takes the new adapter");
  flags.count("--steps-per-update", options.steps_per_update,
              "Of the engine, between two requests");
  flags.count("--updates", options.updates, "Of each source");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_adapter_updates(options);
  return 0;
}

}  // namespace slime::bench
