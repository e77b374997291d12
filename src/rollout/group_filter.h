#pragma once

/// Filter of generated and scored groups: none, a rule, or a user's function.

#include <functional>
#include <stop_token>
#include <variant>

#include "core/filter_verdict.h"
#include "core/sample.h"
#include "rollout/answer.h"

namespace slime::rollout {

/// A group as a user's filter leaves it, and its verdict.
struct FilteredGroup {
  Group group;
  FilterVerdict verdict;
};

/// Called on the rollout's thread, as groups are judged.
using FilterRule = std::function<FilterVerdict(const Group&)>;

/// Asked as soon as a group is generated and scored; the verdict is used in the order in which groups
/// are judged.
using AskFilterFn = std::function<void(Group, std::stop_token, AnswerFn<FilteredGroup>)>;

/// std::monostate keeps all groups.
using GroupFilter = std::variant<std::monostate, FilterRule, AskFilterFn>;

}  // namespace slime::rollout
