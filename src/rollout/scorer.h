#pragma once

/// Rewards of a rollout's samples: a rule, a user's function, or a user's function of whole groups.

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <variant>

#include "core/sample.h"
#include "rollout/answer.h"
#include "rollout/reward_call.h"

namespace slime::rollout {

/// Asks for the rewards of a group's samples; the answer is the group with its rewards.
using AskGroupFn = std::function<void(Group, std::stop_token, AnswerFn<Group>)>;

/// Computed in this process, on reward threads.
struct RuleScorer {
  ScoreFn score;           // empty: there is no rule
  ScoreFn of_evaluations;  // empty: `score`
  /// The longest that the score of a sample may take; empty: RolloutConfig::reward_timeout.
  std::function<std::chrono::duration<double>(const Sample&)> timeout;
};

/// Answered elsewhere, with deadlines of its own.
struct FunctionScorer {
  AskScoreFn ask;
  std::function<bool(const Sample&)>
      scores;  // which samples; empty: all. The rule scores the others
  /// The samples of a list that a GenerateFn returned, as far as they have no reward, in one call;
  /// empty: each by itself.
  AskGroupFn ask_parts;
};

/// Answered elsewhere for all samples of a group at once, when all are generated.
struct GroupScorer {
  AskGroupFn ask;
};

/// Asked for {"teacher_log_probs": [one per response token]} of each whole sample that is to be
/// trained, wherever its reward comes from. On reward threads.
struct Teacher {
  ScoreFn ask;
  std::chrono::duration<double> timeout{120};
};

struct Scorer {
  RuleScorer rule;
  std::variant<std::monostate, FunctionScorer, GroupScorer> function;
  std::optional<Teacher> teacher;

  /// Whether rewards of any kind are given.
  bool gives_rewards() const { return rule.score || function.index() != 0; }
};

}  // namespace slime::rollout
