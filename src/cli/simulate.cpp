#include "cli/simulate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "cli/options.h"
#include "core/error.h"
#include "simulate/modes.h"
#include "simulate/simulate.h"

namespace slime::cli {
namespace {

namespace fs = std::filesystem;

/// What people give rates as.
struct Rates {
  double step_ms = 2.35;
  double sequence_us = 43.2;
  double prefill = 65'000;  // tokens per second
  double train = 22'000;    // tokens per second and device
  double train_step_seconds = 0.2;
  double update_ms = 20;
  double reward_ms = 10;
};

void add_rates(CLI::App& app, Rates& rates) {
  const auto add = [&app](const char* name, double& value, const char* text,
                          const CLI::Validator& range) {
    app.add_option(name, value, text)->capture_default_str()->check(range)->group("Rates");
  };
  const CLI::Range above(1e-6, 1e12);
  const CLI::Range from(0.0, 1e12);
  add("--decode-step-ms", rates.step_ms,
      "a decoding step of an engine (decode-4b-b1 in docs/benchmarks/h200.json)", above);
  add("--decode-sequence-us", rates.sequence_us,
      "what each sequence adds to it (the slope up to decode-4b-b256)", from);
  add("--prefill-tokens-per-second", rates.prefill, "of an engine (estimated)", above);
  add("--train-tokens-per-second", rates.train,
      "of a trainer, prompts and responses (train-step-4b, 6 FLOP per weight and token)", above);
  add("--train-step-seconds", rates.train_step_seconds,
      "what a training step takes besides (estimated)", from);
  add("--update-ms", rates.update_ms, "for which engines stand still for new weights (estimated)",
      from);
  add("--reward-ms", rates.reward_ms, "of one sample (estimated)", from);
}

void add_run(CLI::App& app, simulate::ModesConfig& plan, fs::path& lengths) {
  const auto add = [&app](const char* name, int64_t& value, const char* text) {
    app.add_option(name, value, text)
        ->capture_default_str()
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  };
  add("--num-devices", plan.num_devices, "in all");
  add("--num-trainers", plan.num_trainers, "of those, where trainers have devices of their own");
  add("--rollout-batch-size", plan.prompts_per_step, "prompts per step");
  add("--n-samples-per-prompt", plan.samples_per_prompt, "responses per prompt");
  add("--num-rollout", plan.num_steps, "steps to simulate");
  add("--prompt-tokens", plan.prompt_tokens, "of each prompt");
  add("--rollout-max-response-len", plan.max_response, "longer responses are cut");
  app.add_option("--response-median", plan.lengths.median, "tokens; lengths are log-normal")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e9));
  app.add_option("--response-sigma", plan.lengths.sigma, "of the logarithm of the length")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 10.0));
  app.add_option("--response-lengths", lengths, "a file of lengths instead, one per line");
  app.add_option("--max-staleness", plan.max_staleness, "K of asynchronous modes, in updates")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
  add("--sglang-max-running-requests", plan.max_running, "samples per engine");
  add("--max-total-tokens", plan.kv_tokens, "of keys and values, per engine");
}

/// In memory where that is a folder.
fs::path ledger_file() {
  const fs::path shared = "/dev/shm";
  const fs::path folder = fs::is_directory(shared) ? shared : fs::temp_directory_path();
  return folder / fmt::format("slime_simulate_{}", ::getpid());
}

int replay_schedule(uint64_t seed, bool traces, const fs::path& ledger) {
  simulate::Trace trace;
  if (traces) trace = [](const std::string& line) { fmt::print("{}\n", line); };
  const simulate::Outcome outcome = simulate::simulate(simulate::scenario_of(seed), ledger, trace);
  fmt::print("{} processes, {:.1f} s of simulated time: {}\n", outcome.num_processes,
             outcome.figures.seconds, outcome.problem.empty() ? "all is well" : outcome.problem);
  return outcome.problem.empty() ? 0 : 1;
}

}  // namespace

int simulate(std::span<const std::string> arguments) {
  simulate::ModesConfig plan;
  Rates rates;
  fs::path lengths;
  std::optional<uint64_t> seed;
  bool traces = false;
  CLI::App app(
      "Predicts speed, staleness and idle devices of each mode of training: the loop, the rollout "
      "and the buffer of slime in simulated time, with engines and trainers that only take as long "
      "as the rates say. docs/simulate.md.",
      "slime simulate");
  add_run(app, plan, lengths);
  add_rates(app, rates);
  const auto* seed_option =
      app.add_option("--seed", seed,
                     "replays one schedule of the simulator's tests instead, with "
                     "all that goes wrong in it");
  app.add_flag("--trace", traces, "tells what happens in it")->needs("--seed");
  static_cast<void>(seed_option);
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  const fs::path ledger = ledger_file();
  const std::shared_ptr<void> at_end(nullptr, [&ledger](void*) { fs::remove(ledger); });
  if (seed) return replay_schedule(*seed, traces, ledger);
  simulate::check_modes(plan);
  if (!lengths.empty()) plan.lengths_of_file = simulate::read_lengths(lengths);
  plan.cost = {.step = rates.step_ms / 1e3,
               .step_per_sequence = rates.sequence_us / 1e6,
               .prefill_per_token = 1 / rates.prefill,
               .update = rates.update_ms / 1e3,
               .train = rates.train_step_seconds,
               .train_per_token = 1 / rates.train,
               .reward = rates.reward_ms / 1e3};
  const auto on_mode = [](std::string_view mode, std::size_t number, std::size_t all) {
    fmt::print(stderr, "slime simulate: {} ({} of {})\n", mode, number, all);
  };
  fmt::print("{}", simulate::to_table(simulate::predict(plan, ledger, on_mode), plan));
  return 0;
}

}  // namespace slime::cli
