#include "config/parse_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <type_traits>

#include "config/aliases.h"
#include "config/dotted_names.h"
#include "config/flag_table.h"
#include "config/foreign_flags.h"
#include "config/secrets.h"
#include "config/set_flag.h"
#include "config/yaml.h"
#include "core/error.h"
#include "core/secret_urls.h"

namespace slime::config {
namespace {

/// Flags whose occurrences add up, where they come from one place. Of all others the last one wins,
/// lists included: so does argparse, and so flags behind those of a script win.
constexpr std::string_view kGathered[] = {"--rollout-sample-hook-path", "--prompt-data",
                                          "--eval-prompt-data", "--adapter"};

/// "--lr"; also "----sglang-ep-size", which a published guide contains.
bool is_flag_word(const std::string& word) {
  if (!word.starts_with("--")) return false;
  const std::size_t letter = word.find_first_not_of('-');
  return letter != std::string::npos && letter <= 4 &&
         ((word[letter] >= 'a' && word[letter] <= 'z') ||
          (word[letter] >= 'A' && word[letter] <= 'Z'));
}

/// A scalar as it would stand on a command line.
std::string to_word(const json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : json_text(value);
}

/// One key of a file: `lr: 1e-6`, `use_tis: true`, `eval_prompt_data: [a, a.jsonl]`. Maps travel as
/// their JSON.
std::optional<Setting> setting_of(std::string_view key, const json::value& value,
                                  const std::string& where) {
  Setting setting{.name = "--" + std::string(key), .values = {}, .where = where, .of_file = value};
  std::ranges::replace(setting.name, '_', '-');
  if (value.is_null()) {  // a flag that is not given
    if (find_flag(setting.name) != nullptr) return std::nullopt;
    return setting;
  }
  if (value.is_array()) {
    for (const json::value& element : value.get_array()) setting.values.push_back(to_word(element));
  } else {
    setting.values.push_back(to_word(value));
  }
  return setting;
}

std::vector<Setting> settings_of(const json::object& map, const std::string& where) {
  std::vector<Setting> settings;
  for (const auto& member : map) {
    if (auto setting = setting_of(member.key(), member.value(), where))
      settings.push_back(std::move(*setting));
  }
  return settings;
}

std::vector<Setting> read_settings(const std::string& path, const std::string& key) {
  const json::value root = read_yaml_file(path, key);
  if (root.is_null()) return {};
  if (!root.is_object())
    throw ConfigError(fmt::format("{} {}: should be a map of flag names to values", key, path));
  return settings_of(root.get_object(), path);
}

/// Whether a word behind these is hardly one more of them.
bool has_its_values(const Setting& setting) {
  const FlagRow* flag = find_flag(setting.name);
  return !setting.values.empty() || (flag != nullptr && value_word(*flag).empty());
}

std::vector<Setting> read_words(std::span<const std::string> arguments,
                                std::vector<std::string>& problems) {
  std::vector<Setting> settings;
  for (const std::string& word : arguments) {
    if (is_flag_word(word)) {
      const std::size_t equals = word.find('=');
      settings.push_back({.name = word.substr(0, equals), .values = {}, .where = ""});
      if (equals != std::string::npos) settings.back().values.push_back(word.substr(equals + 1));
    } else if (settings.empty() || (is_word_of_verl(word) && has_its_values(settings.back()))) {
      problems.push_back(fmt::format("\"{}\": expected a flag such as --hf-checkpoint{}", word,
                                     hint_for_word(word)));
    } else {
      settings.back().values.push_back(word);
    }
  }
  return settings;
}

/// Published model scripts name specifications of families that config.json tells apart.
bool names_published_spec(const std::vector<std::string>& values) {
  return !values.empty() && values[0].starts_with("slime_plugins.models.");
}

/// Words behind a script's own win: where they give its one file of prompts again, that one is meant, as the
/// original takes it.
bool adds_up(const FlagRow& flag, const RunConfig& config) {
  if (flag.name == "--prompt-data" && config.from_launch_script) return false;
  return std::ranges::find(kGathered, flag.name) != std::end(kGathered);
}

/// Functions of the user's may read it all the same: args.sglang_tool_call_parser.
void note_for_users(const FlagRow& flag, const Setting& setting, RunConfig& config) {
  std::string name(flag.name.substr(2));
  std::ranges::replace(name, '-', '_');
  config.given_aliases.erase(name);
  if (setting.values.size() > 1) return;
  std::string word = setting.values.empty() ? "" : setting.values[0];
  if (flag.takes_values == 0 && word == "false") return;  // `bf16: false` in a file
  if (flag.takes_values == 0) word.clear();
  config.given_aliases[name] = std::move(word);
}

/// An evaluation set that is given again, with another file.
void drop_renewed_sets(const Setting& setting, ParsedFlags& parsed) {
  std::vector<std::string>& words = parsed.config.eval_prompt_data.change();
  if (words.size() % 2 != 0 || setting.values.size() % 2 != 0) return;
  for (std::size_t i = 0; i < setting.values.size(); i += 2) {
    for (std::size_t k = 0; k < words.size(); k += 2) {
      if (words[k] != setting.values[i]) continue;
      parsed.warnings.push_back(fmt::format("--eval-prompt-data {} {}: {} behind it is taken",
                                            words[k], words[k + 1], setting.values[i + 1]));
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(k),
                  words.begin() + static_cast<std::ptrdiff_t>(k) + 2);
      break;
    }
  }
}

void apply_to(ParsedFlags& parsed, const Setting& setting) {
  const std::string prefix = setting.where.empty() ? "" : setting.where + ": ";
  const FlagRow* flag = find_flag(setting.name);
  if (flag == nullptr) {
    std::string key = setting.name.substr(setting.name.find_first_not_of('-'));
    std::ranges::replace(key, '-', '_');
    parsed.unknown[key] =
        setting.of_file ? *setting.of_file : json::value(value_of_words(setting.values));
    std::string hint = hint_for_unknown(setting.name);
    const bool is_own_key = setting.may_be_own_key && hint.empty();
    parsed.unknown_flags.push_back({setting.name, prefix, std::move(hint), is_own_key,
                                    setting.may_be_own_key, setting.values.size()});
    return;
  }
  const bool is_gathered = adds_up(*flag, parsed.config);
  const std::string place = std::string(flag->name) + "\n" + setting.where;
  const bool adds = is_gathered && parsed.last_places.contains(place);
  if (is_gathered && !adds) {
    std::erase_if(parsed.last_places, [&](const std::string& each) {
      return each.starts_with(std::string(flag->name) + "\n");
    });
    parsed.last_places.insert(place);
  }
  if (flag->name == "--prompt-data" && !is_gathered && parsed.gives(flag->name))
    parsed.warnings.push_back(fmt::format("--prompt-data {}: {} behind it is taken",
                                          fmt::join(parsed.config.prompt_data.peek(), " "),
                                          fmt::join(setting.values, " ")));
  if (flag->name == "--eval-prompt-data" && adds) drop_renewed_sets(setting, parsed);
  parsed.given.emplace_back(flag->name);
  if (flag->name == "--spec" && !names_published_spec(setting.values)) {
    parsed.problems.push_back(
        fmt::format("{}--spec {}: a layer specification is Python; the architecture comes from "
                    "config.json, leave it out for a family of docs/models.md",
                    prefix, fmt::join(setting.values, " ")));
  } else if (flag->status == FlagStatus::kRefused) {
    parsed.problems.push_back(fmt::format("{}{}: {}", prefix, flag->name, flag->meaning));
  } else if (flag->status == FlagStatus::kAlias) {
    note_alias(parsed, *flag, setting);
  } else if (auto wrong = set_flag(*flag, setting, adds, parsed.config)) {
    parsed.problems.push_back(prefix + *wrong);
  } else if (flag->status == FlagStatus::kAccepted) {
    note_for_users(*flag, setting, parsed.config);
    if (!flag->reasons.empty()) {
      parsed.without_effect.emplace_back(flag->name);
      return;
    }
    parsed.warnings.push_back(
        fmt::format("{}{} has no effect: {}", prefix, flag->name, flag->meaning));
  }
}

/// A value of the critic's own is read on its own.
void separate(const FlagRow& row, RunConfig& config) {
  std::visit(
      [&](auto member) {
        if constexpr (!std::is_same_v<decltype(member), std::monostate>)
          (config.*member).separate();
      },
      row.member);
}

/// --megatron-config-path: overrides of the actor are flags like any other; those of the critic
/// make a configuration of its own.
void apply_roles(ParsedFlags& parsed) {
  const std::string& path = parsed.config.megatron_config_path.peek();
  const std::string where = "--megatron-config-path " + path;
  const json::value root = read_yaml_file(path, "--megatron-config-path");
  const json::value* roles = root.is_object() ? root.get_object().if_contains("megatron") : nullptr;
  if (roles == nullptr || !roles->is_array()) {
    throw ConfigError(where + ": should be a map with a list `megatron` of roles");
  }
  std::set<std::string> seen;
  for (const json::value& value : roles->get_array()) {
    const json::object* entry = value.if_object();
    const json::value* role = entry == nullptr ? nullptr : entry->if_contains("role");
    const std::string name = role != nullptr && role->is_string() ? to_word(*role) : "";
    if (name != "actor" && name != "critic") {
      parsed.problems.push_back(where + ": a role should be actor or critic");
      continue;
    }
    if (!seen.insert(name).second) {
      parsed.problems.push_back(fmt::format("{}: role {} appears twice", where, name));
      continue;
    }
    for (const auto& member : *entry) {
      static constexpr std::array<std::string_view, 6> kKeys{
          "name", "role", "overrides", "args", "num_nodes", "num_gpus_per_node"};
      if (std::ranges::find(kKeys, std::string_view(member.key())) == kKeys.end())
        parsed.problems.push_back(
            fmt::format("{}: {}: there is no {}; flags of a role are in its map `overrides`", where,
                        name, std::string_view(member.key())));
    }
    for (const char* key : {"overrides", "args"}) {
      const json::value* overrides = entry->if_contains(key);
      if (overrides == nullptr || overrides->is_null()) continue;
      if (!overrides->is_object()) {
        parsed.problems.push_back(fmt::format("{}: {} of {} should be a map", where, key, name));
        continue;
      }
      const std::vector<Setting> settings =
          settings_of(overrides->get_object(), fmt::format("{}: {}", where, name));
      if (name == "actor") {
        for (const Setting& setting : settings) apply_to(parsed, setting);
        continue;
      }
      ParsedFlags critic{.config = parsed.config};
      for (const Setting& setting : settings) {
        if (const FlagRow* row = find_flag(setting.name)) {
          separate(*row, critic.config);
          for (const std::string_view target : row->alias.targets())
            separate(*find_flag(target), critic.config);
        }
        apply_to(critic, setting);
      }
      resolve_aliases(critic);
      parsed.given_to_critic = critic.given;
      if (critic.config.load.peek() != parsed.config.load.peek()) {
        critic.config.critic_load = critic.config.load.peek();
        critic.config.critic_load.stems_from(critic.config.load);
      }
      parsed.problems.insert(parsed.problems.end(), critic.problems.begin(), critic.problems.end());
      parsed.warnings.insert(parsed.warnings.end(), critic.warnings.begin(), critic.warnings.end());
      parsed.unknown_flags.insert(parsed.unknown_flags.end(), critic.unknown_flags.begin(),
                                  critic.unknown_flags.end());
      parsed.config.critic = std::make_shared<const RunConfig>(std::move(critic.config));
    }
  }
}

}  // namespace

ParsedFlags parse_flags(std::span<const std::string> arguments) {
  ParsedFlags parsed;
  parsed.config = users_defaults();
  std::vector<Setting> settings = read_words(arguments, parsed.problems);
  std::set<std::string> on_command_line;
  for (const Setting& setting : settings) on_command_line.insert(setting.name);
  for (const Setting& setting : std::vector(settings)) {
    if (setting.name != "--config") continue;
    if (setting.values.size() != 1) {
      parsed.problems.emplace_back("--config needs one YAML file");
      continue;
    }
    for (Setting& from_file : read_settings(setting.values[0], "--config")) {
      if (!on_command_line.contains(from_file.name)) settings.push_back(std::move(from_file));
    }
  }
  for (const Setting& setting : settings) {
    if (setting.name != "--config") apply_to(parsed, setting);
  }
  if (!parsed.config.custom_config_path.empty()) {
    for (Setting& setting :
         read_settings(parsed.config.custom_config_path, "--custom-config-path")) {
      setting.may_be_own_key = true;
      apply_to(parsed, setting);
    }
  }
  resolve_aliases(parsed);
  if (!parsed.config.megatron_config_path.empty()) apply_roles(parsed);
  resolve_aliases(parsed);
  return parsed;
}

json::object changed_flags(const RunConfig& config) {
  static const RunConfig kDefaults;
  static const RunConfig kOfUsers = users_defaults();
  json::object changed;
  for (const FlagRow& flag : flag_table()) {
    std::visit(
        [&](auto member) {
          if constexpr (!std::is_same_v<decltype(member), std::monostate>) {
            const auto& value = (config.*member).peek();
            if (value == (kDefaults.*member).peek() || value == (kOfUsers.*member).peek()) return;
            changed[flag.name] = value_of(flag, config);
          }
        },
        flag.member);
  }
  return without_secrets(changed);
}

json::object flags_for_users(const RunConfig& config) {
  json::object flags;
  for (const FlagRow& flag : flag_table()) {
    std::string name(flag.name.substr(2));
    std::ranges::replace(name, '-', '_');
    const auto alias = config.given_aliases.find(name);
    if (alias != config.given_aliases.end()) {
      flags[name] = alias->second.empty() ? json::value(true) : value_of_words({alias->second});
    } else if (std::holds_alternative<std::monostate>(flag.member)) {
      // Code that was written for the original asks for flags that are nothing here.
      flags[name] = flag.takes_values == 0 ? json::value(false) : json::value();
    } else {
      json::value value = value_of(flag, config);
      const bool is_unset = value.is_string() && value.get_string().empty();
      flags[name] = is_unset ? json::value() : std::move(value);
    }
  }
  return without_secrets(flags);
}

std::vector<std::string> words_of(const json::object& flags, const std::string& where) {
  std::vector<std::string> words;
  const auto word = [](const json::value& value) {
    return value.is_string() ? std::string(value.get_string()) : json_text(value);
  };
  for (const auto& member : flags) {
    const std::string name(member.key());
    const json::value& value = member.value();
    if (find_flag(name) == nullptr)
      throw ConfigError(fmt::format("{}: {}: no such flag", where, name));
    if (value.is_null() || (value.is_bool() && !value.get_bool())) continue;
    words.push_back(name);
    if (value.is_bool()) continue;
    if (const json::array* list = value.if_array()) {
      for (const json::value& one : *list) words.push_back(word(one));
    } else {
      words.push_back(word(value));
    }
  }
  return words;
}

}  // namespace slime::config
