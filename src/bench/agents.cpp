#include "bench/agents.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "bench/flags.h"
#include "bench/harness.h"
#include "bench/random_tokens.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "core/random.h"
#include "engine/engine.h"
#include "kernels/gpu/gpu.h"

namespace slime::bench {
namespace {

constexpr uint64_t kLengthSeed = 11;

/// One class because turns, waits and the end of the run follow from the same updates.
class Conversations {
 public:
  Conversations(engine::EngineClient& engine, const AgentsOptions& options, int64_t vocab_size,
                uint64_t seed, const Clock& clock)
      : engine_(engine),
        clock_(clock),
        options_(options),
        vocab_size_(vocab_size),
        seed_(seed),
        agents_(static_cast<std::size_t>(options.agents)) {
    for (std::size_t i = 0; i < agents_.size(); ++i)
      say(agents_[i].tokens, static_cast<int64_t>(i), options.prompt_tokens);
  }

  AgentsRun run() {
    num_open_ = options_.agents;
    const Clock::TimePoint start = clock_.now();
    for (std::size_t i = 0; i < agents_.size(); ++i) submit(i);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_open_ == 0; });
    if (!failure_.empty()) throw ConfigError(failure_);
    run_.seconds = seconds_between(start, clock_.now());
    return std::move(run_);
  }

 private:
  struct Agent {
    std::vector<TokenId> tokens;  // the conversation
    int64_t turn = 0;
    int64_t num_said = 0;  // random tokens so far
    int64_t num_answered = 0;
    Clock::TimePoint last;  // when the prompt was sent, or a token came
  };

  void say(std::vector<TokenId>& tokens, int64_t agent, int64_t count) {
    int64_t& first = agents_[static_cast<std::size_t>(agent)].num_said;
    append_random_tokens(tokens, count, vocab_size_, seed_, agent, first);
    first += count;
  }

  void submit(std::size_t i) {
    Agent& agent = agents_[i];
    engine::GenerateRequest request;
    request.input_ids = agent.tokens;
    request.sampling.max_new_tokens = answer_length(options_, static_cast<int64_t>(i), agent.turn);
    request.sampling.ignore_eos = true;
    request.return_logprob = true;
    agent.num_answered = 0;
    agent.last = clock_.now();
    engine_.submit(std::move(request),
                   [this, i](const engine::GenerateUpdate& update) { take(i, update); });
  }

  /// The engine's thread, or the one that submits where it refuses.
  void take(std::size_t i, const engine::GenerateUpdate& update) {
    const Clock::TimePoint now = clock_.now();
    Agent& agent = agents_[i];
    {
      const std::lock_guard lock(mutex_);
      note_tokens(agent, update, now);
      if (!update.finish) return;
      run_.prompt_tokens += update.prompt_tokens;
      run_.cached_tokens += update.cached_tokens;
      const bool is_whole = update.finish->kind == engine::FinishReason::Kind::kLength;
      if (!is_whole && failure_.empty())
        failure_ = "agents: an answer ended by itself: " + update.finish->message;
      if (!is_whole || ++agent.turn == options_.turns) {
        if (--num_open_ == 0) changed_.notify_all();
        return;
      }
    }
    say(agent.tokens, static_cast<int64_t>(i), options_.growth - agent.num_answered);
    submit(i);
  }

  void note_tokens(Agent& agent, const engine::GenerateUpdate& update, Clock::TimePoint now) {
    if (update.output_ids.empty()) return;
    const double waited = seconds_between(agent.last, now);
    if (agent.num_answered > 0) {
      run_.gaps.push_back(waited);
    } else {
      (agent.turn == 0 ? run_.first_turn_waits : run_.later_waits).push_back(waited);
    }
    agent.last = now;
    const auto count = static_cast<int64_t>(update.output_ids.size());
    agent.num_answered += count;
    run_.output_tokens += count;
    agent.tokens.insert(agent.tokens.end(), update.output_ids.begin(), update.output_ids.end());
  }

  engine::EngineClient& engine_;
  const Clock& clock_;
  const AgentsOptions& options_;
  const int64_t vocab_size_;
  const uint64_t seed_;
  /// Each of whoever submits its next turn: this thread at first, then the engine's.
  std::vector<Agent> agents_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  AgentsRun run_;
  int64_t num_open_ = 0;
  std::string failure_;
};

/// {"median", "p99", "worst"} in milliseconds.
json::object spread_of(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const auto at = [&](double share) {
    if (seconds.empty()) return 0.0;
    const auto place = static_cast<std::size_t>(share * static_cast<double>(seconds.size()));
    return 1e3 * seconds[std::min(place, seconds.size() - 1)];
  };
  return {{"median", at(0.5)}, {"p99", at(0.99)}, {"worst", at(1)}};
}

void check_options(const AgentsOptions& options) {
  if (options.new_tokens + options.new_tokens / 2 > options.growth)
    throw ConfigError(fmt::format(
        "agents: --growth {} has no room for answers of up to {} tokens: at least that, or fewer "
        "--new-tokens",
        options.growth, options.new_tokens + options.new_tokens / 2));
}

void measure_agents(const AgentsOptions& options) {
  check_options(options);
  const model::ModelConfig shape = read_shape(options.shape);
  const auto network = make_up_network_on(options.device, shape);
  const SystemClock clock;
  engine::EngineConfig config;
  config.max_running_requests = options.agents;
  config.max_prefill_tokens = options.max_prefill_tokens;
  config.prefill_beside_decode = options.prefill_beside_decode;
  config.context_length = longest_conversation(options);
  config.kv_cache_dtype = options.kv_cache_dtype;
  config.kv_cache_bytes = cache_bytes_on(options.device);
  engine::Engine engine(*network, config, clock);
  // Batch sizes are recorded and products measured before what counts.
  AgentsOptions brief = options;
  brief.turns = std::min<int64_t>(options.turns, 2);
  brief.new_tokens = std::min<int64_t>(options.new_tokens, 64);
  run_agents(engine, brief, shape.vocab_size, 0, clock);
  std::vector<AgentsRun> runs;
  for (int repeat = 1; repeat <= options.repeats; ++repeat) {
    engine::or_throw(engine.flush_cache());
    runs.push_back(
        run_agents(engine, options, shape.vocab_size, static_cast<uint64_t>(repeat), clock));
  }
  json::object line = agents_line(options, runs);
  line["device"] =
      options.device == "cuda" ? kernels::opened_gpu().description() : std::string("cpu");
  write_json_line(line);
}

}  // namespace

int64_t answer_length(const AgentsOptions& options, int64_t agent, int64_t turn) {
  const double share =
      uniform(kLengthSeed, static_cast<uint64_t>(agent), static_cast<uint64_t>(turn));
  const int64_t shortest = std::max<int64_t>(options.new_tokens / 2, 1);
  return shortest + static_cast<int64_t>(share * static_cast<double>(options.new_tokens));
}

int64_t longest_conversation(const AgentsOptions& options) {
  return options.prompt_tokens + options.turns * options.growth;
}

AgentsRun run_agents(engine::EngineClient& engine, const AgentsOptions& options, int64_t vocab_size,
                     uint64_t seed, const Clock& clock) {
  check_options(options);
  return Conversations(engine, options, vocab_size, seed, clock).run();
}

json::object agents_line(const AgentsOptions& options, const std::vector<AgentsRun>& runs) {
  check(!runs.empty(), "agents ran");
  const AgentsRun& best = *std::ranges::min_element(runs, {}, &AgentsRun::seconds);
  std::vector<double> seconds;
  for (const AgentsRun& run : runs) seconds.push_back(run.seconds);
  return {{"name", options.name},
          {"value", static_cast<double>(best.output_tokens) / best.seconds},
          {"unit", "output tokens per second"},
          {"first_token_ms", spread_of(best.later_waits)},
          {"first_token_of_first_turn_ms", spread_of(best.first_turn_waits)},
          {"token_gap_ms", spread_of(best.gaps)},
          {"agents", options.agents},
          {"turns", options.turns},
          {"output_tokens", best.output_tokens},
          {"prompt_tokens", best.prompt_tokens},
          {"cached_tokens", best.cached_tokens},
          {"chunked_prefill_size", options.max_prefill_tokens},
          {"mixed_prefill_size", options.prefill_beside_decode},
          {"model", options.shape.model},
          {"seconds", json::value_from(seconds)}};
}

int agents(const std::string& name, Arguments arguments) {
  AgentsOptions options;
  options.name = name;
  Flags flags("Agents whose prompts meet requests that decode.", name);
  flags.shape(options.shape);
  flags.device(options.device, "cuda or cpu; the size \"tiny\" is made for the CPU");
  flags.count("--agents", options.agents, "At once");
  flags.count("--turns", options.turns, "Of each agent");
  flags.count("--prompt-tokens", options.prompt_tokens, "Of the first turn");
  flags.count("--growth", options.growth, "Of the prompt from turn to turn, in tokens");
  flags.count("--new-tokens", options.new_tokens, "Mean of an answer");
  flags.prefill(options.max_prefill_tokens);
  flags.range("--mixed-prefill-size", options.prefill_beside_decode, 0, 1 << 20,
              "The same in steps that decode; 0: no other number");
  flags.add("--kv-cache-dtype", options.kv_cache_dtype, "auto or fp8_e4m3");
  flags.repeats(options.repeats, "The fastest counts");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_agents(options);
  return 0;
}

}  // namespace slime::bench
