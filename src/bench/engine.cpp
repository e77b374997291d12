/// Generation on this machine: the engine alone, random prompts of one length, all requests at once,
/// greedy, none ends early.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bench/flags.h"
#include "bench/harness.h"
#include "bench/machine.h"
#include "bench/random_tokens.h"
#include "bench/weight_counts.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "engine/engine.h"
#include "kernels/cpu/thread_pool.h"

namespace slime::bench {
namespace {

struct GenerationLoad {
  int64_t num_requests = 32;
  int64_t input_length = 128;
  int64_t output_length = 128;
  int64_t num_groups = 0;  // distinct prompts; 0: every request has its own
  int64_t rounds = 2;      // after one short warm-up; the fastest counts
  uint64_t seed = 0;
};

struct EngineOptions {
  ModelOptions model;
  engine::EngineConfig engine;
  GenerationLoad load;
};

std::vector<TokenId> random_prompt(const GenerationLoad& config, int64_t request, int64_t length,
                                   int64_t vocab_size) {
  const int64_t prompt = config.num_groups > 0 ? request % config.num_groups : request;
  std::vector<TokenId> ids;
  append_random_tokens(ids, length, vocab_size, config.seed, prompt);
  return ids;
}

struct Round {
  double seconds = 0;
  double prefill_seconds = 0;      // until every request has its first token
  std::vector<double> step_times;  // between steps in which all requests decode
};

Round run_round(engine::Engine& engine, const Clock& clock, const GenerationLoad& config,
                int64_t vocab_size) {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t num_finished = 0;
  int64_t num_started = 0;
  std::vector<int64_t> num_tokens(config.num_requests, 0);
  std::vector<Clock::TimePoint> token_times;  // of request 0, once all have started
  Round round;

  engine::or_throw(engine.flush_cache());
  engine::or_throw(engine.pause(engine::PauseMode::kInPlace));
  const Clock::TimePoint start = clock.now();
  for (int64_t i = 0; i < config.num_requests; ++i) {
    engine::GenerateRequest request;
    request.input_ids = random_prompt(config, i, config.input_length, vocab_size);
    request.sampling.max_new_tokens = config.output_length;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.return_logprob = true;
    engine.submit(std::move(request), [&, i](engine::GenerateUpdate update) {
      const Clock::TimePoint now = clock.now();
      const std::lock_guard lock(mutex);
      if (num_tokens[i] == 0 && ++num_started == config.num_requests)
        round.prefill_seconds = seconds_between(start, now);
      num_tokens[i] += static_cast<int64_t>(update.output_ids.size());
      if (i == 0 && num_started == config.num_requests) token_times.push_back(now);
      if (!update.finish.has_value()) return;
      ++num_finished;
      changed.notify_one();
    });
  }
  engine::or_throw(engine.resume());
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return num_finished == config.num_requests; });
  round.seconds = seconds_between(start, clock.now());
  for (std::size_t i = 1; i < token_times.size(); ++i) {
    round.step_times.push_back(seconds_between(token_times[i - 1], token_times[i]));
  }
  return round;
}

/// {"output_tokens_per_second", "seconds", "prefill_seconds", "decode_step_ms", "decode_gflops",
/// "decode_gb_per_second", ...}
///
/// A decode step reads every weight once (the embedding only as the output layer) and the keys and
/// values of all running requests; it computes two operations per weight and request. Rates are
/// those counts over the median time between two steps in which all requests decode. The prefix
/// cache is emptied before each round.
json::object run_generation(engine::Engine& engine, model::Network& network, const Clock& clock,
                            const GenerationLoad& config) {
  const model::ModelConfig& model = network.config();
  GenerationLoad warm_up = config;
  warm_up.output_length = std::min<int64_t>(config.output_length, 8);
  run_round(engine, clock, warm_up, model.vocab_size);
  Round best;
  json::array all_seconds;
  for (int64_t i = 0; i < config.rounds; ++i) {
    Round round = run_round(engine, clock, config, model.vocab_size);
    all_seconds.emplace_back(round.seconds);
    if (i == 0 || round.seconds < best.seconds) best = std::move(round);
  }
  const Tensor& flat = network.weights().flat();
  const WeightCounts weights = weight_counts(network);
  const auto num_weights = static_cast<double>(weights.multiplied());
  const auto requests = static_cast<double>(config.num_requests);
  const double mean_context =
      static_cast<double>(config.input_length) + static_cast<double>(config.output_length) / 2;
  const auto storage = engine.kv_dtype();
  int64_t kv_numbers = 0, flops_per_pair = 0;
  for (const model::BlockNeeds& block : network.blocks()) {
    kv_numbers += block.cache.numbers_per_token();
    flops_per_pair += block.costs.flops_per_pair;
  }
  const double kv_bytes = requests * mean_context * static_cast<double>(kv_numbers) *
                          static_cast<double>(c10::elementSize(storage));
  const double weight_bytes =
      weights.read(config.num_requests) * static_cast<double>(flat.element_size());
  const double attention_flops = requests * mean_context * static_cast<double>(flops_per_pair);
  const double flops = 2 * requests * num_weights + attention_flops;
  // The output layer computes one row of each prompt; a token sees half of its prompt on average.
  const double head = static_cast<double>(model.vocab_size * model.hidden_size);
  const auto prompts =
      static_cast<double>(config.num_groups > 0 ? config.num_groups : config.num_requests);
  const double prefill_flops =
      2 * prompts *
      (static_cast<double>(config.input_length) *
           (num_weights - head + static_cast<double>(config.input_length * flops_per_pair) / 4) +
       head);
  const double step = median(best.step_times);
  const double output_tokens = requests * static_cast<double>(config.output_length);
  const double input_tokens = requests * static_cast<double>(config.input_length);
  return {
      {"requests", config.num_requests},
      {"input_length", config.input_length},
      {"output_length", config.output_length},
      {"distinct_prompts", config.num_groups > 0 ? config.num_groups : config.num_requests},
      {"weights", c10::toString(flat.scalar_type())},
      {"kv_cache", c10::toString(storage)},
      {"threads", kernels::cpu::num_threads()},
      {"seconds", best.seconds},
      {"seconds_of_rounds", all_seconds},
      {"output_tokens_per_second", output_tokens / best.seconds},
      {"prefill_seconds", best.prefill_seconds},
      {"prefill_tokens_per_second", input_tokens / best.prefill_seconds},
      {"decode_step_ms", step * 1e3},
      {"decode_tokens_per_second", step > 0 ? requests / step : 0},
      {"prefill_flops", prefill_flops},
      {"decode_bytes", weight_bytes + kv_bytes},
      {"decode_flops", flops},
      {"decode_gflops", step > 0 ? flops / step * 1e-9 : 0},
      {"decode_gb_per_second", step > 0 ? (weight_bytes + kv_bytes) / step * 1e-9 : 0},
  };
}

/// The same run at the machine's rates: prefill computes, decoding reads or computes, whichever
/// takes longer.
json::object floor_of(const json::object& result, const MachineRates& rates) {
  const auto number = [&](const char* name) { return result.at(name).to_number<double>(); };
  const double prefill = number("prefill_flops") / rates.flops_per_second;
  const double step = std::max(number("decode_bytes") / rates.read_bytes_per_second,
                               number("decode_flops") / rates.flops_per_second);
  const double seconds = prefill + step * (number("output_length") - 1);
  json::object floor = to_json(rates);
  floor["prefill_seconds"] = prefill;
  floor["decode_step_ms"] = step * 1e3;
  floor["seconds"] = seconds;
  floor["reached"] = seconds / number("seconds");
  floor["decode_reached"] = step * 1e3 / number("decode_step_ms");
  return floor;
}

void measure_engine(const EngineOptions& options) {
  engine::EngineConfig config = options.engine;
  const GenerationLoad& load = options.load;
  config.max_running_requests = std::max(config.max_running_requests, load.num_requests);
  const SystemClock clock;
  const Clock::TimePoint start = clock.now();
  const auto network = options.model.load();
  const double load_seconds = seconds_between(start, clock.now());
  engine::Engine engine(*network, config, clock);
  if (load.input_length + load.output_length > engine.max_request_tokens()) {
    throw ConfigError(
        fmt::format("--input-len {} and --output-len {} exceed the {} tokens a request can have",
                    load.input_length, load.output_length, engine.max_request_tokens()));
  }
  json::object result = run_generation(engine, *network, clock, load);
  result["load_seconds"] = load_seconds;
  result["floor"] = floor_of(result, measure_machine(*network));
  write_json_line(result);
}

}  // namespace

int engine_alone(const std::string& name, Arguments arguments) {
  EngineOptions options;
  GenerationLoad& load = options.load;
  Flags flags("Measure the rollout engine on this machine; JSON to standard output.", name);
  flags.model(options.model);
  flags.add("--kv-cache-dtype", options.engine.kv_cache_dtype,
            "auto, bfloat16, float32 or (GPU) fp8_e4m3");
  flags.range("--requests", load.num_requests, 1, 65536, "Requests at once");
  flags.count("--input-len", load.input_length, "Prompt tokens of each");
  flags.count("--output-len", load.output_length, "Generated tokens of each");
  flags.add("--prompts", load.num_groups, "Distinct prompts; 0: one per request");
  flags.range("--rounds", load.rounds, 1, 1000, "Rounds; the fastest counts");
  flags.prefill(options.engine.max_prefill_tokens);
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_engine(options);
  return 0;
}

}  // namespace slime::bench
