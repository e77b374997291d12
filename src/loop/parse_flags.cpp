#include "loop/parse_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "core/error.h"
#include "loop/flag_table.h"

namespace slime::loop {
namespace {

template <typename... Forms>
struct Overloaded : Forms... {
  using Forms::operator()...;
};

/// One flag with the words behind it.
struct Setting {
  std::string name;
  std::vector<std::string> values;
  std::string where;  // "" for the command line, else the file
};

bool is_flag_word(const std::string& word) {
  if (word.size() < 3 || !word.starts_with("--")) return false;
  return (word[2] >= 'a' && word[2] <= 'z') || (word[2] >= 'A' && word[2] <= 'Z');
}

std::vector<Setting> read_yaml(const std::string& path) {
  YAML::Node root;
  try {
    root = YAML::LoadFile(path);
  } catch (const YAML::Exception& error) {
    throw ConfigError(fmt::format("--config {}: {}", path, error.what()));
  }
  if (!root.IsMap())
    throw ConfigError(fmt::format("--config {}: should be a map of flag names to values", path));
  std::vector<Setting> settings;
  for (const auto& entry : root) {
    Setting setting{.name = "--" + entry.first.as<std::string>(), .values = {}, .where = path};
    std::ranges::replace(setting.name, '_', '-');
    const YAML::Node& value = entry.second;
    if (value.IsSequence()) {
      for (const YAML::Node& element : value) setting.values.push_back(element.as<std::string>());
    } else if (value.IsScalar()) {
      const std::string word = value.as<std::string>();
      if (word == "false") continue;
      if (word != "true") setting.values.push_back(word);
    } else if (value.IsNull()) {
      continue;
    } else {
      throw ConfigError(
          fmt::format("--config {}: {} should be a value or a list", path, setting.name));
    }
    settings.push_back(std::move(setting));
  }
  return settings;
}

std::vector<Setting> read_words(std::span<const std::string> arguments,
                                std::vector<std::string>& problems) {
  std::vector<Setting> settings;
  for (const std::string& word : arguments) {
    if (is_flag_word(word)) {
      const std::size_t equals = word.find('=');
      settings.push_back({.name = word.substr(0, equals), .values = {}, .where = ""});
      if (equals != std::string::npos) settings.back().values.push_back(word.substr(equals + 1));
    } else if (settings.empty()) {
      problems.push_back(fmt::format("\"{}\": expected a flag such as --hf-checkpoint", word));
    } else {
      settings.back().values.push_back(word);
    }
  }
  return settings;
}

template <typename T>
bool read_number(const std::string& word, T& number) {
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  return error == std::errc() && stop == end;
}

/// Returns what is wrong, or nothing.
std::optional<std::string> apply(const Flag& flag, const Setting& setting, RunConfig& config) {
  const auto& values = setting.values;
  const auto one_value = [&](std::string_view kind) -> std::optional<std::string> {
    if (values.size() == 1) return std::nullopt;
    if (values.empty()) return fmt::format("{} needs {}", flag.name, kind);
    return fmt::format("{} takes one value, got {}", flag.name, fmt::join(values, " "));
  };
  const auto number = [&]<typename T>(T& target,
                                      std::string_view kind) -> std::optional<std::string> {
    if (auto wrong = one_value(kind)) return wrong;
    if (!read_number(values[0], target))
      return fmt::format("{} {}: should be {}", flag.name, values[0], kind);
    return std::nullopt;
  };
  if (!flag.choices.empty()) {
    if (auto wrong = one_value("a word")) return wrong;
    if (std::ranges::find(flag.choices, values[0]) == flag.choices.end()) {
      return fmt::format("{} {}: should be one of {}", flag.name, values[0],
                         fmt::join(flag.choices, ", "));
    }
  }
  return std::visit(
      Overloaded{
          [](std::monostate) -> std::optional<std::string> { return std::nullopt; },
          [&](bool RunConfig::*member) -> std::optional<std::string> {
            if (!values.empty()) {
              return fmt::format("{} is a switch and takes no value (got {})", flag.name,
                                 fmt::join(values, " "));
            }
            config.*member = true;
            return std::nullopt;
          },
          [&](int64_t RunConfig::*member) { return number(config.*member, "a whole number"); },
          [&](double RunConfig::*member) { return number(config.*member, "a number"); },
          [&](std::optional<int64_t> RunConfig::*member) {
            return number((config.*member).emplace(), "a whole number");
          },
          [&](std::optional<double> RunConfig::*member) {
            return number((config.*member).emplace(), "a number");
          },
          [&](std::string RunConfig::*member) -> std::optional<std::string> {
            if (auto wrong = one_value("a value")) return wrong;
            config.*member = values[0];
            return std::nullopt;
          },
          [&](std::vector<std::string> RunConfig::*member) -> std::optional<std::string> {
            if (values.empty()) return fmt::format("{} needs at least one value", flag.name);
            auto& target = config.*member;
            target.insert(target.end(), values.begin(), values.end());
            return std::nullopt;
          },
          [&](std::vector<int64_t> RunConfig::*member) -> std::optional<std::string> {
            if (values.empty()) return fmt::format("{} needs at least one value", flag.name);
            for (const std::string& value : values) {
              if (!read_number(value, (config.*member).emplace_back())) {
                return fmt::format("{} {}: should be whole numbers", flag.name, value);
              }
            }
            return std::nullopt;
          }},
      flag.member);
}

template <typename T>
json::value to_value(const T& value) {
  return json::value_from(value);
}

template <typename T>
json::value to_value(const std::optional<T>& value) {
  return value ? json::value(*value) : json::value();
}

std::string status_note(const Flag& flag) {
  switch (flag.status) {
    case FlagStatus::kWorks:
      return std::string(flag.meaning);
    case FlagStatus::kAccepted:
      return fmt::format("(no effect: {})", flag.meaning);
    case FlagStatus::kRefused:
      return fmt::format("(refused: {})", flag.meaning);
  }
  return {};
}

}  // namespace

ParsedFlags parse_flags(std::span<const std::string> arguments) {
  std::vector<std::string> problems;
  std::vector<Setting> settings = read_words(arguments, problems);
  std::set<std::string> on_command_line;
  for (const Setting& setting : settings) on_command_line.insert(setting.name);
  for (const Setting& setting : std::vector(settings)) {
    if (setting.name != "--config") continue;
    if (setting.values.size() != 1) {
      problems.emplace_back("--config needs one YAML file");
      continue;
    }
    for (Setting& from_file : read_yaml(setting.values[0])) {
      if (!on_command_line.contains(from_file.name)) settings.push_back(std::move(from_file));
    }
  }
  ParsedFlags parsed;
  for (const Setting& setting : settings) {
    if (setting.name == "--config") continue;
    const std::string prefix = setting.where.empty() ? "" : setting.where + ": ";
    const Flag* flag = find_flag(setting.name);
    if (flag == nullptr) {
      const auto nearest = nearest_flag(setting.name);
      parsed.warnings.push_back(
          fmt::format("{}unknown flag {} is ignored{}", prefix, setting.name,
                      nearest ? fmt::format("; did you mean {}?", *nearest) : ""));
      continue;
    }
    parsed.given.emplace_back(flag->name);
    if (flag->status == FlagStatus::kRefused) {
      problems.push_back(fmt::format("{}{}: {}", prefix, flag->name, flag->meaning));
      continue;
    }
    if (auto wrong = apply(*flag, setting, parsed.config)) {
      problems.push_back(prefix + *wrong);
    } else if (flag->status == FlagStatus::kAccepted) {
      parsed.warnings.push_back(
          fmt::format("{}{} has no effect: {}", prefix, flag->name, flag->meaning));
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
  return parsed;
}

std::string flag_help() {
  std::string text;
  std::optional<FlagGroup> group;
  for (const Flag& flag : flag_table()) {
    if (flag.group != group) {
      group = flag.group;
      text += fmt::format("\n{}\n", group_title(flag.group));
    }
    const std::string left = fmt::format("{} {}", flag.name, value_word(flag));
    text += fmt::format("  {:<44} {}", left, status_note(flag));
    if (!flag.choices.empty()) text += fmt::format(": {}", fmt::join(flag.choices, ", "));
    const std::string fallback = default_text(flag);
    if (flag.status == FlagStatus::kWorks && !fallback.empty())
      text += fmt::format(" [{}]", fallback);
    text += '\n';
  }
  return text;
}

json::object changed_flags(const RunConfig& config) {
  static const RunConfig kDefaults;
  json::object changed;
  for (const Flag& flag : flag_table()) {
    std::visit(
        [&](auto member) {
          if constexpr (!std::is_same_v<decltype(member), std::monostate>) {
            if (config.*member == kDefaults.*member) return;
            changed[flag.name] = to_value(config.*member);
          }
        },
        flag.member);
  }
  return changed;
}

std::string flag_markdown() {
  std::string text =
      "# Flags of `slime train`\n\nGenerated from the flag table (`slime train --help-markdown`). "
      "Every flag can also stand in the YAML "
      "file of `--config`, without the dashes.\n";
  std::optional<FlagGroup> group;
  for (const Flag& flag : flag_table()) {
    if (flag.group != group) {
      group = flag.group;
      text += fmt::format(
          "\n## {}\n\n| flag | value | default | status | meaning |\n| --- | --- | --- | --- | --- "
          "|\n",
          group_title(flag.group));
    }
    const std::string_view status = flag.status == FlagStatus::kWorks      ? "works"
                                    : flag.status == FlagStatus::kAccepted ? "accepted, no effect"
                                                                           : "refused";
    text +=
        fmt::format("| `{}` | {} | {} | {} | {}{} |\n", flag.name, value_word(flag),
                    default_text(flag), status, flag.meaning,
                    flag.choices.empty() ? "" : fmt::format(": {}", fmt::join(flag.choices, ", ")));
  }
  return text;
}

}  // namespace slime::loop
