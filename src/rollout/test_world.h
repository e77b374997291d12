#pragma once

/// For tests: what a rollout needs around it.

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rollout/rollout.h"
#include "rollout/uneven_engine.h"

namespace slime::rollout {

/// The n samples of the prompt {100 + ordinal, 5}.
inline Group group_of(int64_t ordinal, int n) {
  Group group{.ordinal = ordinal, .samples = {}};
  for (int i = 0; i < n; ++i) {
    Sample sample;
    sample.ordinal = ordinal * n + i;
    sample.group = ordinal;
    sample.index_in_group = i;
    sample.tokens = {static_cast<TokenId>(100 + ordinal), 5};
    sample.prompt_length = 2;
    group.samples.push_back(std::move(sample));
  }
  return group;
}

/// A supply whose answers a test sets one by one.
struct ScriptedPrompts final : PromptSupply {
  std::function<std::vector<Group>(int64_t)> on_take;
  std::function<void(std::vector<Group>)> on_give_back;
  std::function<bool(const Group&)> on_replayed;                  // empty: false
  std::function<void(int64_t, int64_t)> on_discard;               // may be empty
  std::function<void(const Group&, const std::string&)> on_drop;  // may be empty

  std::vector<Group> take(int64_t count) override { return on_take(count); }
  void give_back(std::vector<Group> groups) override { on_give_back(std::move(groups)); }
  bool is_replayed(const Group& group) const override { return on_replayed && on_replayed(group); }
  void discarded(int64_t ordinal, int64_t num_tokens) override {
    if (on_discard) on_discard(ordinal, num_tokens);
  }
  void dropped(const Group& group, const std::string& reason) override {
    if (on_drop) on_drop(group, reason);
  }
};

/// An uneven engine and hooks that keep, score 1 and note everything.
struct World {
  UnevenEngine engine;
  RolloutConfig config{.groups_per_step = 3, .groups_per_refill = 3, .max_concurrent_samples = 4};
  ScriptedPrompts prompts;
  RolloutHooks hooks;
  ResponseRules rules;
  std::atomic<bool> stop{false};
  int64_t next = 0;
  std::vector<Group> returned;
  std::vector<std::pair<int64_t, std::string>> dropped;

  World() {
    rules.sampling.max_new_tokens = 8;
    hooks.prompts = &prompts;
    prompts.on_take = [this](int64_t count) {
      std::vector<Group> groups;
      for (int64_t i = 0; i < count; ++i) groups.push_back(group_of(next++, 2));
      return groups;
    };
    prompts.on_give_back = [this](std::vector<Group> groups) {
      std::ranges::move(groups, std::back_inserter(returned));
    };
    hooks.detokenize = [](std::span<const TokenId> ids) { return std::to_string(ids.size()); };
    hooks.scorer.rule.score = [](const Sample&, const std::stop_token&) -> Expected<json::value> {
      return json::value(1.0);
    };
    prompts.on_drop = [this](const Group& group, const std::string& reason) {
      dropped.emplace_back(group.ordinal, reason);
    };
  }
  FunctionScorer& function_scorer() {
    auto* scorer = std::get_if<FunctionScorer>(&hooks.scorer.function);
    return scorer != nullptr ? *scorer : hooks.scorer.function.emplace<FunctionScorer>();
  }

  /// From now on groups that came back are given out first, as by a buffer.
  void give_returned_first() {
    prompts.on_take = [this](int64_t count) {
      std::vector<Group> groups;
      for (int64_t i = 0; i < count; ++i) {
        if (returned.empty()) {
          groups.push_back(group_of(next++, 2));
        } else {
          groups.push_back(std::move(returned.front()));
          returned.erase(returned.begin());
        }
      }
      return groups;
    };
  }
  StepOrder order(int64_t step = 0) {
    return {.step = step, .rules = rules, .version = engine.version, .stop = &stop};
  }
  /// A step on a rollout of its own.
  StepResult run() {
    Rollout rollout(engine, config, hooks);
    return run(rollout);
  }
  StepResult run(Rollout& rollout, int64_t step = 0) {
    rollout.open_step(order(step));
    return take_step(rollout);
  }
};

}  // namespace slime::rollout
