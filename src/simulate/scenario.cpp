#include "simulate/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace slime::simulate {
namespace {

template <typename T, std::size_t n>
T one_of(Chance& chance, const std::array<T, n>& values) {
  return values[chance.next() % n];
}

/// Short ones, and some that take as long as may be.
StubEngine::LengthFn lengths(Chance& chance, int64_t max_response) {
  const double long_share = one_of(chance, std::array{0.0, 0.05, 0.3});
  const int64_t usual = chance.between(1, std::max<int64_t>(2, max_response / 4));
  return [=, seed = chance.next()](uint64_t key) {
    Chance own(seed ^ key);
    return own.happens(long_share) ? max_response * 2 : own.between(1, usual);
  };
}

void choose_mode(Scenario& run, Chance& chance) {
  run.is_async = chance.happens(0.7);
  run.groups_per_step = chance.between(1, 4);
  run.groups_per_refill = run.groups_per_step;
  run.samples_per_group = chance.between(1, 3);
  run.num_steps = chance.between(2, 8);
  run.max_concurrent_samples = chance.between(1, 16);
  run.max_waiting_groups = chance.between(1, 3) * run.groups_per_step;
  run.save_interval = chance.between(1, 3);
  if (chance.happens(0.25)) run.eval_interval = chance.between(1, 3);
  run.shares_weights = chance.happens(0.3);
  run.recomputes = chance.happens(0.5);
  if (!run.is_async) {
    run.keeps_partial = chance.happens(0.5);
    run.groups_per_refill += chance.between(0, 2 * run.groups_per_step);
    run.shares_weights = true;
    return;
  }
  run.max_staleness = chance.between(0, 4);
  if (!run.shares_weights) run.steps_per_update = chance.between(1, 3);
  run.update_mode = one_of(chance, std::array{"suspend", "suspend", "interrupt", "drain"});
  using enum rollout::StalePolicy;
  run.policy = one_of(chance, std::array{kWait, kDrop, kRetry, kCorrect});
  using enum rollout::ConsumptionOrder;
  run.order = one_of(chance, std::array{kDispatch, kFinish});
}

void choose_world(Scenario& run, Chance& chance) {
  if (chance.happens(0.15)) {
    run.num_prompts = chance.between(1, run.num_steps * run.groups_per_step);
  }
  run.max_response = chance.between(1, 60);
  run.length_of = lengths(chance, run.max_response);
  StubEngineConfig& engine = run.engine;
  engine.num_devices = chance.happens(0.2) ? 2 : 1;
  engine.max_running = chance.between(1, 12);
  engine.prompt_tokens = chance.between(1, 20);
  engine.max_chunk = one_of(chance, std::array<int64_t, 3>{1, 4, 16});
  if (chance.happens(0.4)) {
    const int64_t one = engine.prompt_tokens + run.max_response + 1;
    engine.kv_tokens = one + chance.between(0, 3 * one);
  }
  engine.cost = {.step = chance.uniform(0.005, 0.02),
                 .step_per_sequence = chance.uniform(0, 0.002),
                 .prefill_per_token = chance.uniform(0, 0.001),
                 .update = one_of(chance, std::array{0.0, 0.01, 0.3}),
                 .train = one_of(chance, std::array{0.0, 0.05, 0.5}),
                 .train_per_token = chance.uniform(0, 0.001),
                 .reward = one_of(chance, std::array{0.0, 0.01, 0.2})};
  run.reward_threads = chance.between(1, 3);
  if (chance.happens(0.5)) run.filter_rate = chance.uniform(0, 0.6);
}

void choose_faults(Scenario& run, Chance& chance) {
  if (chance.happens(0.3)) return;
  const auto sometimes = [&chance](double highest) {
    return chance.happens(0.3) ? chance.uniform(0, highest) : 0;
  };
  EngineFaults& engine = run.engine.faults;
  engine.late = sometimes(0.5);
  engine.duplicate = sometimes(0.5);
  engine.latest = chance.uniform(0, 0.5);
  engine.death = sometimes(0.03);
  engine.dead_for = chance.uniform(0, 0.3);
  engine.fatal = sometimes(0.005);
  run.reward_fails = sometimes(0.1);
  run.reward_hangs = sometimes(0.05);
  run.reward_timeout = chance.uniform(1, 3);  // several times what a reward takes
  run.disk_full = sometimes(0.02);
  run.kill = sometimes(0.01);
  run.rank_lost = sometimes(0.1);
  run.max_restarts = chance.between(1, 4);
}

}  // namespace

Scenario scenario_of(uint64_t seed) {
  Scenario run{.seed = seed};
  Chance chance(seed);
  choose_mode(run, chance);
  choose_world(run, chance);
  choose_faults(run, chance);
  return run;
}

std::string describe(const Scenario& run) {
  constexpr std::array kPolicies{"wait", "drop", "retry", "correct"};
  std::string line = fmt::format(
      "seed {}: {} steps of {} groups x {}, {} in the engine, {} may wait, at most {} tokens",
      run.seed, run.num_steps, run.groups_per_step, run.samples_per_group,
      run.max_concurrent_samples, run.max_waiting_groups, run.max_response);
  if (run.is_async) {
    line +=
        fmt::format("; asynchronous, K {}, k {}, {}{}, order {}, {}", run.max_staleness,
                    run.steps_per_update, run.update_mode, run.recomputes ? " and recompute" : "",
                    run.order == rollout::ConsumptionOrder::kFinish ? "finish" : "dispatch",
                    kPolicies[static_cast<std::size_t>(run.policy)]);
  } else {
    line += fmt::format("; synchronous, refills of {}{}", run.groups_per_refill,
                        run.keeps_partial ? ", partial" : "");
  }
  if (run.shares_weights) line += ", shared weights";
  if (run.eval_interval > 0) line += fmt::format(", evaluates every {}", run.eval_interval);
  if (run.num_prompts < 1'000'000) line += fmt::format(", {} prompts", run.num_prompts);
  if (run.filter_rate > 0) line += fmt::format(", filter {:.2f}", run.filter_rate);
  return line;
}

}  // namespace slime::simulate
