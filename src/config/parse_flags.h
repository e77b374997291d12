#pragma once

/// Parser of a RunConfig: command line and YAML through the flag table, then the rules between
/// flags.

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/run_config.h"
#include "core/json.h"

namespace slime::config {

struct ParsedFlags {
  RunConfig config;
  std::vector<std::string> given;                 // names that were set, in order
  std::vector<std::string> given_to_critic = {};  // by --megatron-config-path, to its role
  std::vector<std::string> ignored = {};          // unknown ones that do not stop the run
  std::vector<std::string> unread = {};           // those without effect (config/unread_flags.h)
  std::vector<std::string> warnings;              // ineffective flags
  /// Flags that are no row of the table, with what is to be said of each: complete_and_validate
  /// decides whether they are problems.
  struct Unknown {
    std::string name;   // "--learning-rate"
    std::string where;  // "run.yaml: ", or nothing for the command line
    std::string hint;   // "; here it is --lr"
    /// A key of --custom-config-path that resembles no flag: those files have keys of their own.
    bool is_own_key = false;
    bool is_of_own_file = false;  // a key of --custom-config-path
    std::size_t num_values = 0;

    std::string text() const { return where + "unknown flag " + name + hint; }
  };
  std::vector<Unknown> unknown_flags = {};
  /// Flags without effect whose reason depends on the run; complete_and_validate words them.
  std::vector<std::string> without_effect = {};
  /// Wrong types, refused flags: complete_and_validate throws them.
  std::vector<std::string> problems;
  /// Where lists that add up were last given: the flag and the file, with a line end between them.
  std::set<std::string> last_places = {};
  json::object
      unknown;  // flags that are no row of the table, by name with _ for -: plug-ins may read them

  /// Aliases that were given, with the flags that they mean not set yet (config/aliases.h).
  std::vector<std::pair<std::string, std::string>> pending_aliases = {};  // name and word
  /// Flags that an alias has set, and how: "--update-mode", "--pause-generation-mode abort".
  std::map<std::string, std::string, std::less<>> said_by_alias = {};

  bool gives(std::string_view flag) const { return std::ranges::find(given, flag) != given.end(); }
  /// Given, or meant by an alias that was.
  bool says(std::string_view flag) const { return gives(flag) || said_by_alias.contains(flag); }
  /// "--update-mode interrupt", or the alias that means it.
  std::string how_said(std::string_view flag, const std::string& value) const {
    const auto alias = said_by_alias.find(flag);
    return gives(flag) || alias == said_by_alias.end() ? std::string(flag) + " " + value
                                                       : alias->second;
  }
};

/// Reads "--name value ...", "--name=value", "--config FILE.yaml" (same words, `lr: 1e-6`; the
/// command line wins) and "--custom-config-path FILE.yaml" (the file wins). Unknown flags are listed
/// with the name that may be meant; a wrong type, a value outside the allowed words or a refused flag
/// is a problem. Throws ConfigError for a file
/// that cannot be read.
ParsedFlags parse_flags(std::span<const std::string> arguments);

/// The flags whose value is not the default, for run.json and the report.
json::object changed_flags(const RunConfig& config);

/// All flags with a value of their own, as users' functions read them: names with underscores, null
/// for those that are not set. Secrets are hidden.
json::object flags_for_users(const RunConfig& config);

/// Flags as changed_flags() gives them, as words of a command line. Throws ConfigError that begins
/// with `where` for one that has no row in the table.
std::vector<std::string> words_of(const json::object& flags, const std::string& where);

/// docs/flags.md, generated.
std::string flag_markdown();

}  // namespace slime::config
