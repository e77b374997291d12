#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/april.h"
#include "bench/flags.h"
#include "bench/generate_all.h"
#include "bench/random_tokens.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "kernels/gpu/gpu.h"

namespace slime::bench {
namespace {

/// Of `count` tokens, evenly chosen among those of many samples: how many of its response lie before
/// it. Requests of a full engine are so far on, whatever the schedule.
std::vector<int64_t> stationary_ages(const AprilOptions& options, int64_t count) {
  constexpr int64_t kDraws = 4096;
  int64_t sum = 0;
  for (int64_t i = 0; i < kDraws; ++i) sum += april_length(options, i);
  std::vector<int64_t> ages;
  int64_t before = 0;  // tokens of the samples before `i`
  for (int64_t i = 0; i < kDraws; ++i) {
    const int64_t length = april_length(options, i);
    while (static_cast<int64_t>(ages.size()) < count) {
      const int64_t token = (2 * static_cast<int64_t>(ages.size()) + 1) * sum / (2 * count);
      if (token >= before + length) break;
      ages.push_back(token - before);
    }
    before += length;
  }
  return ages;
}

/// Tokens per second of requests that run together, `sampled[i]` tokens behind their prompts.
double batch_rate(engine::Engine& engine, const AprilOptions& options, int64_t vocab_size,
                  std::span<const int64_t> sampled) {
  constexpr int64_t kWindow = 64;
  const auto seconds_of = [&](int64_t new_tokens) {
    std::vector<engine::GenerateRequest> all(sampled.size());
    for (std::size_t i = 0; i < sampled.size(); ++i) {
      engine::GenerateRequest& request = all[i];
      append_random_tokens(request.input_ids, options.prompt_tokens, vocab_size, 17,
                           static_cast<int64_t>(i) / options.samples);
      append_random_tokens(request.input_ids, sampled[i], vocab_size, 19, static_cast<int64_t>(i));
      request.sampling.max_new_tokens = new_tokens;
      request.sampling.ignore_eos = true;
      request.return_logprob = true;
    }
    const SystemClock clock;
    const auto start = clock.now();
    generate_all(engine, std::move(all));
    return seconds_between(start, clock.now());
  };
  engine::or_throw(engine.flush_cache());
  seconds_of(kWindow);  // prompts into the prefix tree, batch sizes recorded
  const double brief = seconds_of(1);
  const double full = seconds_of(1 + kWindow);
  return static_cast<double>(static_cast<int64_t>(sampled.size()) * kWindow) /
         std::max(full - brief, 1e-9);
}

/// Of as many requests as run together, in tokens per second.
struct FullBatchRates {
  double even = 0;    // each as long as the mean token's: no schedule is faster
  double ragged = 0;  // as a full engine has them
};

FullBatchRates full_batch_rates(engine::Engine& engine, const AprilOptions& options,
                                int64_t vocab_size) {
  constexpr int64_t kRoomBehind = 96;
  std::vector<int64_t> ages = stationary_ages(options, options.max_running_requests);
  const auto mean = [&ages] {
    return std::accumulate(ages.begin(), ages.end(), int64_t{0}) /
           static_cast<int64_t>(ages.size());
  };
  const int64_t room = engine::or_throw(engine.load()).num_kv_tokens;
  const int64_t requests =
      std::min(options.max_running_requests, room / (options.prompt_tokens + mean() + kRoomBehind));
  if (requests == 0) return {};
  ages = stationary_ages(options, requests);
  const std::vector<int64_t> even(ages.size(), mean());
  return {.even = batch_rate(engine, options, vocab_size, even),
          .ragged = batch_rate(engine, options, vocab_size, ages)};
}

train::TrainConfig train_config(const AprilOptions& options) {
  train::TrainConfig config;
  config.lr = {.lr = 1e-6, .style = train::DecayStyle::kConstant};
  config.batching.global_batch_size = options.prompts * options.samples;
  config.batching.use_dynamic_batch_size = true;
  config.batching.max_tokens_per_gpu = options.micro_batch_tokens;
  return config;
}

int64_t cache_bytes(const AprilOptions& options, model::Network& network) {
  if (options.kv_cache_gb > 0) return static_cast<int64_t>(options.kv_cache_gb * 1e9);
  return cache_bytes_on(options.device);
}

json::object line_of(const AprilOptions& options, const std::string& form, const AprilRun& run,
                     const FullBatchRates& rates) {
  const double rate = rates.even;
  const auto kept = static_cast<double>(run.kept_tokens);
  // Whoever knows all lengths keeps the engine full to the end.
  const double floor_seconds = rate > 0 ? kept / rate + run.training_seconds : 0;
  const double floor = rate > 0 ? static_cast<double>(run.groups) / floor_seconds : 0;
  const AprilRun::Ledger& ledger = run.ledger;
  return {{"name", options.name},
          {"form", form},
          {"value", run.groups_per_second()},
          {"unit", "groups per second"},
          {"floor", floor},
          {"fraction", floor > 0 ? run.groups_per_second() / floor : 0},
          {"steps", run.steps},
          {"first_step", options.first_step},
          {"groups", run.groups},
          {"seconds", run.seconds},
          {"training_seconds", run.training_seconds},
          {"kept_tokens_per_second", kept / run.seconds},
          {"full_batch_tokens_per_second", rate},
          {"ragged_batch_tokens_per_second", rates.ragged},
          {"prompt_tokens_computed", run.prompt_tokens - run.cached_tokens},
          {"prompt_tokens_found", run.cached_tokens},
          {"mean_running", run.mean_running},
          {"generated_tokens", ledger.generated},
          {"kept_tokens", ledger.kept},
          {"discarded_tokens", ledger.discarded},
          {"pending_tokens", ledger.pending},
          {"discarded_share", static_cast<double>(ledger.discarded) /
                                  static_cast<double>(std::max<int64_t>(ledger.generated, 1))},
          {"length_scale", options.length_scale}};
}

/// Prints a JSON line for each form, and one with their ratios. Throws BugError when the tokens of
/// a form do not add up.
void measure_april(const AprilOptions& options) {
  for (const std::string& form : options.forms) check_april_form(options, form);
  const model::ModelConfig shape = read_shape(options.shape);
  const auto network = make_up_network_on(
      options.device, shape, options.trains ? kTrainingWeightBound : kGenerationWeightBound);
  const SystemClock clock;
  std::optional<train::Trainer> trainer;
  if (options.trains) trainer.emplace(*network, train_config(options), clock);
  engine::EngineConfig config;
  config.max_running_requests = options.max_running_requests;
  config.max_prefill_tokens = 8192;
  config.context_length = options.prompt_tokens + longest_april_length(options);
  config.kv_cache_bytes = cache_bytes(options, *network);
  config.drafts = options.drafts.settings();
  engine::Engine engine(*network, config, clock);
  const FullBatchRates rates = full_batch_rates(engine, options, shape.vocab_size);
  const std::string device =
      options.device == "cuda" ? kernels::opened_gpu().description() : options.device;
  std::map<std::string, double> speeds;
  for (const std::string& form : options.forms) {
    const AprilRun run =
        run_april(engine, shape.vocab_size, trainer ? &*trainer : nullptr, options, form);
    check(run.ledger.adds_up(), "generated = kept + discarded + pending");
    speeds[form] = run.groups_per_second();
    json::object line = line_of(options, form, run, rates);
    put_drafts(line, options.drafts, run.drafts);
    line["trains"] = options.trains;
    line["updates_weights"] = options.trains || options.updates_weights;
    line["model"] = options.shape.model;
    line["device"] = device;
    write_json_line(line);
  }
  json::object ratios{{"name", options.name}, {"form", "ratios"}};
  for (const std::string form : {"partial", "partial-early", "partial-late"}) {
    for (const std::string other : {"sync", "sync-double", "partial-late"}) {
      if (form != other && speeds.contains(form) && speeds.contains(other))
        ratios[fmt::format("{}_to_{}", form, other)] = speeds[form] / speeds[other];
    }
  }
  if (ratios.size() > 2) write_json_line(ratios);
}

}  // namespace

int april(const std::string& name, Arguments arguments) {
  AprilOptions options{.name = name};
  Flags flags(
      "APRIL's tail: groups per second of synchronous steps, and with over-sampling and partial "
      "rollouts.",
      name);
  flags.shape(options.shape);
  flags.device(options.device, "cuda or cpu; the size \"tiny\" is made for the CPU");
  flags.list("--forms", options.forms,
             "sync, partial, partial-early, partial-late, sync-double; separated by commas");
  flags.count("--prompts", options.prompts, "Of a step");
  flags.count("--samples", options.samples, "Of each prompt");
  flags.count("--prompt-tokens", options.prompt_tokens, "Of each prompt");
  flags.range("--length-scale", options.length_scale, 1e-4, 1.0,
              "All lengths of responses times this; named in the output");
  flags.count("--steps", options.steps, "That count, of each form");
  flags.add("--warm-up", options.warm_up, "Steps before them, of the partial form")
      ->check(CLI::NonNegativeNumber);
  flags
      .add("--first-step", options.first_step,
           "Where the prompts begin: steps of the synchronous forms can be measured apart")
      ->check(CLI::NonNegativeNumber);
  flags.count("--max-running-requests", options.max_running_requests, "Requests per step");
  flags.count("--concurrency", options.concurrency, "Samples in the engine");
  flags.range("--kv-cache-gb", options.kv_cache_gb, 0.0, 1000.0,
              "Size of the cache, in 10^9 bytes; 0: what is free");
  flags.add_flag("--train", options.trains, "Train on each step's groups");
  flags.add_flag("--update-weights", options.updates_weights,
                 "Without training too: new weights after each step, so that what was handed back "
                 "is prefilled again");
  flags.count("--max-tokens-per-gpu", options.micro_batch_tokens, "Of a micro-batch");
  flags.drafts(options.drafts);
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_april(options);
  return 0;
}

}  // namespace slime::bench
