#include "simulate/modes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <numbers>

#include "core/error.h"

namespace slime::simulate {
namespace {

StubEngine::LengthFn lengths_of(const ModesConfig& config) {
  return [config](uint64_t key) -> int64_t {
    Chance own(key ^ config.seed);
    if (!config.lengths_of_file.empty())
      return config.lengths_of_file[own.next() % config.lengths_of_file.size()];
    const double radius = std::sqrt(-2 * std::log(1 - own.uniform()));
    const double normal = radius * std::cos(2 * std::numbers::pi * own.uniform());
    const double length = config.lengths.median * std::exp(config.lengths.sigma * normal);
    return std::max<int64_t>(1, std::llround(std::min(length, 1e9)));
  };
}

/// What all modes have in common.
Scenario scenario_of(const ModesConfig& config, int64_t num_engines, int64_t num_trainers) {
  Scenario run{.seed = config.seed};
  run.is_async = false;
  run.groups_per_step = run.groups_per_refill = config.prompts_per_step;
  run.samples_per_group = config.samples_per_prompt;
  run.num_steps = config.num_steps;
  run.max_staleness = config.max_staleness;
  run.max_waiting_groups = 2 * config.prompts_per_step;
  run.max_concurrent_samples = 2 * config.max_running * num_engines;
  run.save_interval = config.num_steps;
  run.max_response = config.max_response;
  run.length_of = lengths_of(config);
  run.engine.cost = config.cost;
  run.engine.cost.train_per_token /= static_cast<double>(num_trainers);
  run.engine.num_devices = num_engines;
  run.engine.max_running = config.max_running;
  run.engine.kv_tokens = config.kv_tokens;
  run.engine.prompt_tokens = config.prompt_tokens;
  run.reward_threads = 64;
  run.most_turns = std::numeric_limits<int64_t>::max();  // who asks for much waits for it
  return run;
}

Prediction predict_one(std::string mode, const Scenario& scenario, int64_t num_trainers,
                       const std::filesystem::path& ledger) {
  Prediction prediction{.mode = std::move(mode),
                        .num_engines = scenario.engine.num_devices,
                        .num_trainers = num_trainers,
                        .takes_turns = scenario.shares_weights};
  Disk disk{.ledger = ledger, .checkpoint = {}};
  Process process(scenario, disk, 0, {});
  process.run();
  prediction.figures = process.figures();
  return prediction;
}

double share_left(double used, double all) { return all > 0 ? std::max(0.0, 1 - used / all) : 0; }

}  // namespace

double Prediction::steps_per_hour() const {
  return 3600 * static_cast<double>(figures.num_steps) / figures.seconds;
}
double Prediction::groups_per_second() const {
  return static_cast<double>(figures.num_groups) / figures.seconds;
}
double Prediction::trained_tokens_per_second() const {
  return static_cast<double>(figures.tokens_trained) / figures.seconds;
}
double Prediction::mean_lag() const {
  return static_cast<double>(figures.lag_sum) /
         static_cast<double>(std::max<int64_t>(figures.tokens_trained, 1));
}
double Prediction::trainers_idle() const {
  return share_left(figures.train_seconds, figures.seconds);
}
double Prediction::engines_idle() const {
  return share_left(figures.engine_seconds, figures.seconds * static_cast<double>(num_engines));
}
double Prediction::devices_idle() const {
  const auto trainers = static_cast<double>(num_trainers);
  const auto engines = static_cast<double>(num_engines);
  return share_left(figures.train_seconds * trainers + figures.engine_seconds,
                    figures.seconds * (takes_turns ? engines : trainers + engines));
}

void check_modes(const ModesConfig& config) {
  std::vector<std::string> problems;
  const bool is_split = config.num_devices > 1 || config.num_trainers > 1;
  if (is_split && config.num_trainers >= config.num_devices)
    problems.push_back(fmt::format("--num-trainers {}: leaves no engine of --num-devices {}",
                                   config.num_trainers, config.num_devices));
  if (config.prompt_tokens + config.max_response > config.kv_tokens)
    problems.push_back(
        fmt::format("--max-total-tokens {}: is less than one request may have, --prompt-tokens {} "
                    "and --rollout-max-response-len {}",
                    config.kv_tokens, config.prompt_tokens, config.max_response));
  if (!problems.empty()) throw ConfigError(problems);
}

std::vector<Prediction> predict(const ModesConfig& config, const std::filesystem::path& ledger,
                                const OnMode& on_mode) {
  std::vector<Prediction> predictions;
  const std::size_t num_modes = config.num_devices <= config.num_trainers ? 3 : 6;
  const auto add = [&](std::string mode, const Scenario& scenario, int64_t num_trainers) {
    if (on_mode) on_mode(mode, predictions.size() + 1, num_modes);
    predictions.push_back(predict_one(std::move(mode), scenario, num_trainers, ledger));
  };
  Scenario turns = scenario_of(config, config.num_devices, config.num_devices);
  turns.shares_weights = true;
  add("synchronous, taking turns", turns, config.num_devices);
  Scenario april = turns;
  april.keeps_partial = true;
  april.groups_per_refill = 2 * config.prompts_per_step;
  add("partial rollout, twice over-sampled", april, config.num_devices);
  Scenario colocated = turns;
  colocated.is_async = true;
  add(fmt::format("asynchronous, K {}, taking turns", config.max_staleness), colocated,
      config.num_devices);
  if (config.num_devices <= config.num_trainers) return predictions;

  Scenario split =
      scenario_of(config, config.num_devices - config.num_trainers, config.num_trainers);
  add("synchronous, devices split", split, config.num_trainers);
  split.is_async = true;
  Scenario ahead = split;
  ahead.max_staleness = 1;
  ahead.update_mode = "drain";
  add("one step ahead (drain), split", ahead, config.num_trainers);
  add(fmt::format("asynchronous, K {}, split", config.max_staleness), split, config.num_trainers);
  return predictions;
}

std::vector<int64_t> read_lengths(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw ConfigError(fmt::format("{}: cannot be read", path.string()));
  std::vector<int64_t> lengths;
  int64_t length = 0;
  while (file >> length) {
    if (length < 1)
      throw ConfigError(fmt::format("{}: {} is no length of a response", path.string(), length));
    lengths.push_back(length);
  }
  if (!file.eof() || lengths.empty())
    throw ConfigError(
        fmt::format("{}: should have one number of tokens per line, is something "
                    "else behind {} of them",
                    path.string(), lengths.size()));
  return lengths;
}

std::string to_table(const std::vector<Prediction>& predictions, const ModesConfig& config) {
  std::string text = fmt::format(
      "Prediction, not a measurement: {} steps of {} prompts x {} samples, simulated.\n\n"
      "{:<38}{:>9}{:>10}{:>11}{:>9}{:>9}{:>9}{:>7}{:>7}\n",
      config.num_steps, config.prompts_per_step, config.samples_per_prompt, "", "steps/h",
      "groups/s", "trained", "trainers", "engines", "devices", "lag", "lag");
  text += fmt::format("{:<38}{:>9}{:>10}{:>11}{:>9}{:>9}{:>9}{:>7}{:>7}\n", "mode", "", "",
                      "tokens/s", "idle", "idle", "idle", "mean", "max");
  for (const Prediction& row : predictions) {
    const auto percent = [](double share) { return fmt::format("{:.0f}%", 100 * share); };
    text +=
        fmt::format("{:<38}{:>9.1f}{:>10.2f}{:>11.0f}{:>9}{:>9}{:>9}{:>7.2f}{:>7}\n", row.mode,
                    row.steps_per_hour(), row.groups_per_second(), row.trained_tokens_per_second(),
                    percent(row.trainers_idle()), percent(row.engines_idle()),
                    percent(row.devices_idle()), row.mean_lag(), row.figures.largest_lag);
  }
  const estimate::CostModel& cost = config.cost;
  text += fmt::format(
      "\nRates: a decoding step {:.2f} ms + {:.1f} us per sequence; prompts {:.0f} tokens/s; "
      "training {:.0f} tokens/s\nper trainer + {:.2f} s a step; new weights {:.0f} ms; at most {} "
      "samples and {} tokens of cache per engine.\n",
      1e3 * cost.step, 1e6 * cost.step_per_sequence, 1 / cost.prefill_per_token,
      1 / cost.train_per_token, cost.train, 1e3 * cost.update, config.max_running,
      config.kv_tokens);
  return text;
}

}  // namespace slime::simulate
