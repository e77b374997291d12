#include "bench/update_pause.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "bench/engines_apart.h"
#include "bench/flags.h"
#include "bench/harness.h"
#include "bench/made_up_directory.h"
#include "bench/random_tokens.h"
#include "cluster/local_process.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/limits.h"
#include "roles/engine_workers.h"

namespace slime::bench {
namespace {

/// Steps before the first update: batch sizes are recorded, and each sequence decodes.
constexpr int64_t kStepsBefore = 30;
/// The bar at 256 sequences of 4B on one H200.
constexpr double kBarMilliseconds = 5;
/// The bar for 4B to come from one device to another.
constexpr double kTransferBarMilliseconds = 40;
constexpr int64_t kPrefillTokens = 8192;

engine::RunningRequests running_of(const std::string& mode) {
  if (mode == "keep") return engine::RunningRequests::kKeep;
  if (mode == "recompute") return engine::RunningRequests::kRecompute;
  if (mode == "interrupt") return engine::RunningRequests::kAbort;
  throw ConfigError(fmt::format("--modes {}: keep, recompute or interrupt", mode));
}

/// Sequences that decode until they are stopped, and when their steps ended. A step ends for the
/// caller with its last token; the next begins with a token of a sequence that has one of this step.
/// One class because the ends of steps, of sequences and of the measurement follow from the same
/// updates.
class Decoding {
 public:
  Decoding(engine::EngineClient& engine, const Clock& clock, const UpdatePauseOptions& options,
           int64_t vocab_size, int64_t max_new_tokens)
      : engine_(engine), clock_(clock), sequences_(static_cast<std::size_t>(options.sequences)) {
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      sequences_[i].left = max_new_tokens;
      append_random_tokens(sequences_[i].tokens, options.prompt_tokens, vocab_size, 5,
                           static_cast<int64_t>(i));
    }
    num_open_ = options.sequences;
    for (std::size_t i = 0; i < sequences_.size(); ++i) submit(i);
  }

  ~Decoding() { stop(); }
  Decoding(const Decoding&) = delete;
  Decoding& operator=(const Decoding&) = delete;

  /// Until all sequences have a token, and so many steps more.
  void wait_for_steps(int64_t more) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return all_have_begun() || !failure_.empty(); });
    const int64_t goal = num_steps_ + more;
    changed_.wait(lock, [&] { return num_steps_ >= goal || !failure_.empty(); });
    if (!failure_.empty()) throw ConfigError(failure_);
  }

  /// Ends all of them, and waits for that.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    engine_.abort_all();  // one that shuts down ends them too
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_open_ == 0; });
  }

  /// From the last token of a step to the first of the next, in seconds; after stop(). Those across
  /// versions with the number of gaps within versions before them.
  std::vector<double> gaps_within;
  std::vector<std::pair<std::size_t, double>> gaps_across_versions;

 private:
  struct Sequence {
    std::vector<TokenId> tokens;
    int64_t left = 0;
    int64_t in_step = -1;  // the last step that gave it a token
  };

  void submit(std::size_t i) {
    engine::GenerateRequest request;
    request.input_ids = sequences_[i].tokens;
    request.sampling.max_new_tokens = sequences_[i].left;
    request.sampling.ignore_eos = true;
    request.return_logprob = true;
    engine_.submit(std::move(request),
                   [this, i](const engine::GenerateUpdate& update) { take(i, update); });
  }

  /// The engine's thread, or the one that submits where it refuses.
  void take(std::size_t i, const engine::GenerateUpdate& update) {
    const Clock::TimePoint now = clock_.now();
    bool goes_on = false;
    {
      const std::lock_guard lock(mutex_);
      Sequence& sequence = sequences_[i];
      if (!update.output_ids.empty()) note_token(sequence, update.versions.back().version, now);
      sequence.tokens.insert(sequence.tokens.end(), update.output_ids.begin(),
                             update.output_ids.end());
      sequence.left -= static_cast<int64_t>(update.output_ids.size());
      if (update.finish) {
        const bool was_asked = update.finish->kind == engine::FinishReason::Kind::kAbort &&
                               update.finish->cause == engine::FinishReason::Cause::kRequested;
        goes_on = was_asked && !is_stopping_;
        if (!was_asked && failure_.empty())
          failure_ = "update-pause: a sequence ended by itself: " + update.finish->message;
        num_open_ -= goes_on ? 0 : 1;
        changed_.notify_all();
      }
    }
    if (goes_on) submit(i);
  }

  void note_token(Sequence& sequence, WeightVersion version, Clock::TimePoint now) {
    const bool is_first = sequence.in_step < 0;
    num_begun_ += is_first ? 1 : 0;
    if (sequence.in_step == num_steps_ || version != version_) {
      if (all_have_begun() && !is_stopping_) {
        const double gap = seconds_between(last_token_, now);
        if (has_full_step_ && version == version_) gaps_within.push_back(gap);
        if (has_full_step_ && version != version_)
          gaps_across_versions.emplace_back(gaps_within.size(), gap);
        has_full_step_ = true;
      }
      ++num_steps_;
      changed_.notify_all();
    }
    sequence.in_step = num_steps_;
    version_ = version;
    last_token_ = now;
  }
  bool all_have_begun() const { return num_begun_ == static_cast<int64_t>(sequences_.size()); }

  engine::EngineClient& engine_;
  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<Sequence> sequences_;
  int64_t num_open_ = 0;
  int64_t num_begun_ = 0;
  int64_t num_steps_ = 0;
  bool has_full_step_ = false;
  bool is_stopping_ = false;
  WeightVersion version_ = 0;
  Clock::TimePoint last_token_;
  std::string failure_;
};

/// Steps grow longer with the sequences, so a gap is compared with the steps beside it.
double normal_step_at(const std::vector<double>& gaps_within, std::size_t position) {
  constexpr std::size_t kBeside = 8;
  const auto at = [&](std::size_t index) {
    return gaps_within.begin() + static_cast<std::ptrdiff_t>(std::min(index, gaps_within.size()));
  };
  const std::vector<double> beside(at(position < kBeside ? 0 : position - kBeside),
                                   at(position + kBeside));
  return beside.empty() ? 0 : median(beside);
}

double largest(const std::vector<double>& numbers) {
  return numbers.empty() ? 0 : *std::ranges::max_element(numbers);
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
  if (line["mode"] == "keep" && is_gpu) line["bar_ms"] = kBarMilliseconds;
  if (options.engines_apart > 0 && is_gpu) line["transfer_bar_ms"] = kTransferBarMilliseconds;
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
  const auto fresh = make_up_network_on(options.device, shape);
  const auto bytes = static_cast<int64_t>(fresh->weights().flat().nbytes());
  const SystemClock clock;
  const double floor_ms = copy_floor_ms(options, bytes);
  engine::EngineConfig config;
  config.max_running_requests = options.sequences;
  config.max_prefill_tokens = kPrefillTokens;
  config.context_length = longest_context(options, shape);
  config.stages_weights = true;
  config.kv_cache_bytes = cache_bytes_on(options.device) - (options.device == "cuda" ? bytes : 0);
  engine::Engine engine(*running, config, clock);
  for (const std::string& mode : options.modes) {
    print(measure_update_pause(engine_here(engine, *fresh, mode), options, mode), options,
          floor_ms);
  }
}

/// As the engines of a run with --rollout-num-gpus; the trained weights are made up.
void measure_apart(const UpdatePauseOptions& options) {
  const model::ModelConfig shape = read_shape(options.shape);
  const bool is_gpu = options.device == "cuda";
  const auto trained = make_up_network_on(options.device, shape);
  const auto bytes = static_cast<int64_t>(trained->weights().flat().nbytes());
  const double floor_ms = copy_floor_ms(options, bytes);
  const MadeUpDirectory directory({.shape = options.shape, .has_weights = false});
  const SystemClock clock;
  cluster::LocalLauncher launcher;
  roles::EngineWorkersConfig config = config_of({.shape = options.shape,
                                                 .device = options.device,
                                                 .engines = options.engines_apart,
                                                 .devices_before = 1,
                                                 .sequences = options.sequences,
                                                 .prompt_tokens = options.prompt_tokens,
                                                 .context = longest_context(options, shape)},
                                                directory);
  for (const std::string& mode : options.modes) {
    config.running = running_of(mode);
    const auto published = model::make_blank_network(
        shape, {.weights = trained->weights().flat().scalar_type(),
                .activations = is_gpu ? trained->weights().flat().scalar_type() : at::kFloat,
                .device = trained->weights().flat().device()});
    published->weights().copy_from(trained->weights());
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
      .weight_bytes = static_cast<int64_t>(fresh.weights().flat().nbytes()),
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
  Decoding decoding(engine.client, clock, options, engine.vocab_size, room);
  decoding.wait_for_steps(kStepsBefore);
  std::vector<double> copies, calls, transfers;
  WeightVersion version = engine.client.weight_version();
  for (int64_t i = 0; i < options.updates; ++i) {
    const auto start = clock.now();
    engine.update(++version);
    calls.push_back(1e3 * seconds_between(start, clock.now()));
    copies.push_back(1e3 * engine.copy_seconds());
    if (engine.transfer_seconds) transfers.push_back(1e3 * engine.transfer_seconds());
    decoding.wait_for_steps(options.steps_per_update);
  }
  decoding.stop();
  std::vector<double> pauses;
  for (const auto& [position, gap] : decoding.gaps_across_versions)
    pauses.push_back(1e3 * std::max(0.0, gap - normal_step_at(decoding.gaps_within, position)));
  json::object line{{"mode", mode},
                    {"value", median(pauses)},
                    {"unit", "ms"},
                    {"worst_ms", largest(pauses)},
                    {"updates", pauses.size()},
                    {"normal_step_ms", 1e3 * median(decoding.gaps_within)},
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
