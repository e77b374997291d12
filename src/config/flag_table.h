#pragma once

/// The one table of flags: word, member, meaning, status. Help text, documentation, parsing and
/// type checks come from it.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/run_config.h"

namespace slime::config {

struct ParsedFlags;

/// Where a flag's value goes. A bool member is a switch without value; monostate has no member (the
/// flag is accepted or refused only).
using FlagMember = std::variant<
    std::monostate, Flag<bool> RunConfig::*, Flag<int64_t> RunConfig::*, Flag<double> RunConfig::*,
    Flag<std::string> RunConfig::*, Flag<std::optional<int64_t>> RunConfig::*,
    Flag<std::optional<double>> RunConfig::*, Flag<std::vector<std::string>> RunConfig::*,
    Flag<std::vector<int64_t>> RunConfig::*>;

enum class FlagStatus {
  kWorks,     // it does what `meaning` says
  kAlias,     // it says in other words what other flags say
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

/// A circumstance of a run, in the user's words and as a test of its flags.
struct Condition {
  std::string_view words;                     // "--profile"; of a message "it counts with ..."
  bool (*holds)(const RunConfig&) = nullptr;  // null: the words alone
};

/// Why a flag has no effect where a condition holds.
struct ConditionalReason {
  Condition where;
  std::string_view why;
};

/// When it is known whether a flag that works is read.
enum class ReadWhen {
  kTranslated,  // before the run, by its translations and the row's test of the flags
  kAtStart,     // once the run has its data and its checkpoint: they ask for it, or do not
  kInRun,       // by its end: what it meets asks for it
};

/// A flag and the word behind it: "--update-mode", "suspend". A switch has none.
struct FlagAndWord {
  std::string_view flag;
  std::string_view word;
};

/// Meaning of a flag's value in the words of other flags (config/aliases.h).
struct Alias {
  /// For each word that it takes; a switch has one, empty.
  std::vector<std::pair<std::string_view, std::vector<FlagAndWord>>> words = {};
  /// Without words: the flag that it has the value of ...
  std::string_view same_as = {};
  /// ... converted, where there is a conversion: from its value, before validation. Notes what is
  /// wrong with the value, or changed by it.
  std::string (*convert)(const std::string& value, ParsedFlags& parsed) = nullptr;
  FlagMember value_like = {};  // a flag of its values' type, where a conversion changes that
  bool yields = false;         // where the flag itself is given too, that counts

  bool is_switch() const { return words.size() == 1 && words.front().first.empty(); }
  /// A flag whose values have the type of this one's.
  FlagMember value_member() const;
  /// All flags that it may set.
  std::vector<std::string_view> targets() const;
};

struct FlagRow {
  std::string_view name;  // "--lr"
  FlagGroup group = FlagGroup::kModel;
  FlagStatus status = FlagStatus::kWorks;
  FlagMember member;
  std::string_view meaning;
  std::vector<std::string_view> choices = {};  // allowed words, empty: any
  /// Without member: 0 switch, 1 one value, 2 many; -1: the member's type decides.
  int takes_values = -1;
  /// Where the flag counts. With a test: stations read it deep in the run, where the test holds.
  /// Without: what the translations read decides (config/unread_flags.h).
  std::optional<Condition> counts = {};
  ReadWhen read_when = ReadWhen::kTranslated;
  /// Of a flag without effect: the first that holds replaces `meaning`.
  std::vector<ConditionalReason> reasons = {};
  Alias alias = {};

  FlagRow when(const Condition& condition) && {
    counts = condition;
    return std::move(*this);
  }
  /// Where the condition holds, what the run begins with may ask for the flag.
  FlagRow at_start(const Condition& condition) && {
    read_when = ReadWhen::kAtStart;
    return std::move(*this).when(condition);
  }
  /// Where the condition holds, what the run meets may ask for the flag.
  FlagRow in_run(const Condition& condition) && {
    read_when = ReadWhen::kInRun;
    return std::move(*this).when(condition);
  }
  FlagRow with(std::string_view words) && {
    counts = Condition{words};
    return std::move(*this);
  }
  FlagRow where(const Condition& condition, std::string_view why) && {
    reasons.push_back({condition, why});
    return std::move(*this);
  }
};

/// Why a flag has no effect in this run.
std::string_view reason_of(const FlagRow& flag, const RunConfig& config);

/// What a command that sets nothing says; a RunConfig made in code is on the CPU.
RunConfig users_defaults();

std::span<const FlagRow> flag_table();
std::string_view group_title(FlagGroup group);
const FlagRow* find_flag(std::string_view name);

/// The flag with the smallest edit distance, if it is close enough to be what was meant.
std::optional<std::string> nearest_flag(std::string_view name);

/// Type word for help and documentation: "", "N", "X", "WORD", "WORDS...".
std::string_view value_word(const FlagRow& flag);
/// The default as users would type it; empty when there is none.
std::string default_text(const FlagRow& flag);

}  // namespace slime::config
