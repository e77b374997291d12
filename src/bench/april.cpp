#include "bench/april.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "bench/forced_lengths.h"
#include "bench/generate_all.h"
#include "bench/group_places.h"
#include "bench/random_tokens.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/random.h"
#include "kernels/gpu/gpu.h"
#include "rollout/rollout.h"

namespace slime::bench {
namespace {

/// Ordinals of the groups of short steps that warm up.
constexpr int64_t kWarmUpGroups = int64_t{1} << 40;
constexpr int64_t kWarmUpLength = 32;

struct Form {
  int64_t groups_per_step = 0;
  int64_t groups_per_refill = 0;
  bool keeps_partial = false;
  bool refills_at_once = false;
  bool frees_places_by_group = false;  // of the engine; otherwise sample by sample
};

Form form_of(const AprilOptions& options, const std::string& form) {
  if (form == "sync") return {options.prompts, options.prompts, false};
  if (form == "partial") return {options.prompts, options.over_sampling * options.prompts, true};
  if (form == "partial-early")
    return {options.prompts, options.over_sampling * options.prompts, true, true};
  if (form == "partial-late")
    return {options.prompts, options.over_sampling * options.prompts, true, true, true};
  if (form == "sync-double") return {2 * options.prompts, 2 * options.prompts, false};
  throw ConfigError(
      fmt::format("--forms {}: sync, partial, partial-early, partial-late or sync-double", form));
}

/// Groups in the order of their ordinals; those that came back go first.
class Prompts final : public rollout::PromptSupply {
 public:
  Prompts(const AprilOptions& options, int64_t vocab_size)
      : options_(options), vocab_size_(vocab_size) {}

  void continue_at(int64_t ordinal) { next_ = ordinal; }
  std::vector<Group> take(int64_t count) override {
    std::vector<Group> groups;
    for (; count > 0; --count) {
      if (returned_.empty()) {
        groups.push_back(make(next_++));
      } else {
        groups.push_back(std::move(returned_.front()));
        returned_.pop_front();
      }
    }
    return groups;
  }
  void give_back(std::vector<Group> groups) override {
    std::ranges::move(groups, std::back_inserter(returned_));
  }
  void dropped(const Group&, const std::string& reason) override {
    throw ConfigError("april: a group was dropped: " + reason);
  }
  int64_t pending_tokens() const {
    int64_t sum = 0;
    for (const Group& group : returned_)
      for (const Sample& sample : group.samples) sum += sample.response_length();
    return sum;
  }

 private:
  Group make(int64_t ordinal) const {
    Group group{.ordinal = ordinal, .samples = {}};
    Sample sample;
    sample.group = ordinal;
    sample.prompt_length = options_.prompt_tokens;
    append_random_tokens(sample.tokens, options_.prompt_tokens, vocab_size_, 11, ordinal);
    for (int64_t i = 0; i < options_.samples; ++i) {
      sample.ordinal = ordinal * options_.samples + i;
      sample.index_in_group = i;
      group.samples.push_back(sample);
    }
    return group;
  }

  const AprilOptions& options_;
  const int64_t vocab_size_;
  int64_t next_ = 0;
  std::deque<Group> returned_;
};

rollout::RolloutHooks hooks_over(Prompts& prompts) {
  rollout::RolloutHooks hooks;
  hooks.prompts = &prompts;
  hooks.detokenize = [](std::span<const TokenId>) { return std::string(); };
  hooks.scorer.rule.score = [](const Sample& sample,
                               const std::stop_token&) -> Expected<json::value> {
    return json::value(uniform(13, 1, static_cast<uint64_t>(sample.ordinal)));
  };
  return hooks;
}

int64_t response_tokens(const std::vector<Group>& groups) {
  int64_t sum = 0;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples) sum += sample.response_length();
  return sum;
}

/// Keys and values, which an update makes void in any case, leave the GPU to gradients and activations
/// meanwhile, as in `slime train`.
void train_in_turn(engine::Engine& engine, train::Trainer& trainer,
                   const std::vector<Group>& groups, const std::string& device) {
  if (device != "cuda") {
    trainer.train(train::make_train_batch(groups, {}));
    return;
  }
  engine::or_throw(engine.sleep());
  trainer.train(train::make_train_batch(groups, {}));
  trainer.release_gradients();
  kernels::opened_gpu().release_unused_memory();
  engine::or_throw(engine.wake());
}

/// How many requests an engine runs, looked at a hundred times a second.
class RunningMeter {
 public:
  explicit RunningMeter(const engine::Engine& engine)
      : thread_([this, &engine](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            const auto running = static_cast<double>(engine::or_throw(engine.load()).num_running);
            {
              const std::lock_guard lock(mutex_);
              sum_ += running;
              ++num_looks_;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
        }) {}

  /// The mean since the call before.
  double take() {
    const std::lock_guard lock(mutex_);
    const auto looks = static_cast<double>(std::max<int64_t>(std::exchange(num_looks_, 0), 1));
    return std::exchange(sum_, 0.0) / looks;
  }

 private:
  std::mutex mutex_;
  double sum_ = 0;         // guarded by mutex_
  int64_t num_looks_ = 0;  // guarded by mutex_
  std::jthread thread_;    // last: it uses the others
};

}  // namespace

void check_april_form(const AprilOptions& options, const std::string& form) {
  form_of(options, form);
}

int64_t longest_april_length(const AprilOptions& options) {
  return std::max<int64_t>(
      1, std::llround(options.length_scale * static_cast<double>(options.longest)));
}

int64_t april_length(const AprilOptions& options, int64_t sample_ordinal) {
  const double sampled =
      options.median_length *
      std::exp(options.sigma * normal(7, 1, static_cast<uint64_t>(sample_ordinal)));
  const double cut = std::min(sampled, static_cast<double>(options.longest));
  return std::max<int64_t>(1, std::llround(options.length_scale * cut));
}

AprilRun run_april(engine::Engine& engine, int64_t vocab_size, train::Trainer* trainer,
                   const AprilOptions& options, const std::string& form) {
  const Form how = form_of(options, form);
  const SystemClock clock;
  engine::or_throw(engine.flush_cache());
  ForcedLengths forced(engine, options.prompt_tokens, [&options](int64_t ordinal) {
    const bool counts = ordinal < kWarmUpGroups * options.samples;
    const int64_t length = april_length(options, ordinal);
    return counts ? length : std::min(length, kWarmUpLength);
  });
  GroupPlaces by_group(forced, options.max_running_requests, [&options](const std::string& rid) {
    return ForcedLengths::ordinal_in(rid) / options.samples;
  });
  engine::EngineClient* client = &forced;
  if (how.frees_places_by_group) client = &by_group;
  Prompts prompts(options, vocab_size);
  rollout::Rollout rollout(
      *client,
      {.groups_per_step = how.groups_per_step,
       .groups_per_refill = how.groups_per_refill,
       .max_concurrent_samples = options.concurrency,
       .num_slots = std::min(options.concurrency, options.max_running_requests),
       .keeps_partial = how.keeps_partial,
       .refills_at_once = how.refills_at_once,
       .max_waiting_groups = 2 * how.groups_per_step},
      hooks_over(prompts));
  rollout::ResponseRules rules;
  rules.sampling.max_new_tokens = longest_april_length(options);
  rules.sampling.ignore_eos = true;
  rules.seed = 23;

  RunningMeter meter(engine);
  AprilRun run;
  WeightVersion version = engine.weight_version();
  const auto step = [&](int64_t number, bool counts) {
    const auto start = clock.now();
    rollout.open_step({.step = number, .rules = rules, .version = version});
    const rollout::StepResult result = rollout::take_step(rollout);
    const auto sampled = clock.now();
    if (trainer != nullptr) {
      engine::or_throw(engine.pause(engine::PauseMode::kInPlace));
      train_in_turn(engine, *trainer, result.groups, options.device);
    }
    if (trainer != nullptr || options.updates_weights) {
      // Keys and values of what was handed back are gone.
      engine::or_throw(engine.update_weights({.version = ++version}));
      engine::or_throw(engine.resume());
    }
    const auto end = clock.now();
    const int64_t kept = response_tokens(result.groups);
    std::fputs(fmt::format("{} step {}: {} groups, {} tokens, {:.1f} s{}\n", form, number,
                           result.groups.size(), kept, seconds_between(start, end),
                           counts ? "" : " (warm-up)")
                   .c_str(),
               stderr);
    const ForcedLengths::PromptTokens prompt_tokens = forced.take_prompt_tokens();
    const DraftCounts drafts = forced.take_drafts();
    const double mean_running = meter.take();
    run.ledger.generated += result.end.generated_tokens;
    run.ledger.discarded += result.end.discarded_tokens;
    run.ledger.kept += kept;
    if (!counts) return;
    ++run.steps;
    run.groups += static_cast<int64_t>(result.groups.size());
    run.kept_tokens += kept;
    run.seconds += seconds_between(start, end);
    run.training_seconds += seconds_between(sampled, end);
    run.prompt_tokens += prompt_tokens.all;
    run.cached_tokens += prompt_tokens.found;
    run.drafts += drafts;
    run.mean_running +=
        (mean_running - run.mean_running) / static_cast<double>(run.steps);  // steps are alike
  };

  int64_t number = 0;
  if (!how.keeps_partial) {
    prompts.continue_at(kWarmUpGroups);
    step(number++, false);
  }
  prompts.continue_at(options.first_step * how.groups_per_step);
  if (how.keeps_partial) {
    for (int64_t i = 0; i < options.warm_up; ++i) step(number++, false);
  }
  for (int64_t i = 0; i < options.steps; ++i) step(number++, true);
  run.ledger.pending = prompts.pending_tokens();
  return run;
}

}  // namespace slime::bench
