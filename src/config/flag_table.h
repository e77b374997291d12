#pragma once

/// The one table of flags: word, member, meaning, status. Help text, documentation, parsing and
/// type checks come from it.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/run_config.h"

namespace slime::config {

/// Where a flag's value goes. A bool member is a switch without value; monostate has no member (the
/// flag is accepted or refused only).
using FlagMember =
    std::variant<std::monostate, bool RunConfig::*, int64_t RunConfig::*, double RunConfig::*,
                 std::string RunConfig::*, std::optional<int64_t> RunConfig::*,
                 std::optional<double> RunConfig::*, std::vector<std::string> RunConfig::*,
                 std::vector<int64_t> RunConfig::*>;

enum class FlagStatus {
  kWorks,     // it does what `meaning` says
  kAccepted,  // scripts carry it; `meaning` says why it has no effect here. A warning is printed.
  kRefused,   // it asks for something we do not do; `meaning` says what to use. An error.
};

enum class FlagGroup {
  kModel,
  kData,
  kRollout,
  kAsync,
  kEngine,
  kReward,
  kAlgorithm,
  kOptimizer,
  kBatch,
  kEval,
  kOutput,
  kShape,
  kParallel
};

struct Flag {
  std::string_view name;  // "--lr"
  FlagGroup group = FlagGroup::kModel;
  FlagStatus status = FlagStatus::kWorks;
  FlagMember member;
  std::string_view meaning;
  std::vector<std::string_view> choices = {};  // allowed words, empty: any
  /// Without member: 0 switch, 1 one value, 2 many; -1: the member's type decides.
  int takes_values = -1;
};

std::span<const Flag> flag_table();
std::string_view group_title(FlagGroup group);
const Flag* find_flag(std::string_view name);

/// The flag with the smallest edit distance, if it is close enough to be what was meant.
std::optional<std::string> nearest_flag(std::string_view name);

/// Type word for help and documentation: "", "N", "X", "WORD", "WORDS...".
std::string_view value_word(const Flag& flag);
/// The default as users would type it; empty when there is none.
std::string default_text(const Flag& flag);

}  // namespace slime::config
