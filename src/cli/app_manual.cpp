#include "cli/app_manual.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "core/lower_case.h"

namespace slime::cli {
namespace {

/// "TEXT:{auto,cpu,cuda}" or "INT:INT in [1 - 65536]", as CLI11 writes type and checks of an option.
struct TypeText {
  std::string type;
  std::vector<std::string> words;
  std::string range;
};

TypeText parse_type(const std::string& text) {
  TypeText parts;
  parts.type = text.substr(0, text.find(':'));
  const std::size_t open = text.find(":{");
  const std::size_t close = text.rfind('}');
  if (open != text.npos && close != text.npos && close > open) {
    std::string_view list = std::string_view(text).substr(open + 2, close - open - 2);
    while (!list.empty()) {
      const std::size_t comma = std::min(list.find(','), list.size());
      parts.words.emplace_back(list.substr(0, comma));
      list.remove_prefix(std::min(comma + 1, list.size()));
    }
  } else if (const std::size_t bound = text.find(" in ["); bound != text.npos) {
    parts.range = text.substr(bound + 5);
    parts.range = parts.range.substr(0, parts.range.find(']'));
  } else if (text.ends_with(":POSITIVE")) {
    parts.range = "above 0";
  } else if (text.ends_with(":NONNEGATIVE")) {
    parts.range = "0 or more";
  }
  return parts;
}

help::Names names_by(std::string_view name, const TypeText& type, std::string_view checks) {
  using enum help::Names;
  const std::string word = lower_case(std::string(name));
  const auto is = [&](std::string_view each) { return word == each || type.type == each; };
  if (is("model") || is("--model") || is("--tokenizer-path") || is("MODEL")) return kModel;
  if (word.starts_with("run_dir") || is("run") || is("RUN")) return kRun;
  if (checks.find(":DIR") != checks.npos || word.ends_with("folder") || word.ends_with("-dir") ||
      word.ends_with("-root") || is("FOLDER"))
    return kFolder;
  if (checks.find(":FILE") != checks.npos || word.ends_with("file") || is("path") || is("FILE") ||
      is("--input") || is("--chat-template") || is("--generator"))
    return kFile;
  return kNothing;
}

help::Option option_of(const CLI::Option& option) {
  const std::string checks = option.get_type_name();
  const TypeText type = parse_type(checks);
  help::Option made{.choices = type.words, .range = type.range};
  for (const std::string& name : option.get_lnames()) made.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) made.names.push_back("-" + name);
  made.is_argument = made.names.empty();
  if (made.is_argument) made.names = {option.get_name(true, false)};
  made.meaning = option.get_description();
  made.is_required = option.get_required();
  made.is_idle = made.meaning == "no effect here" || made.meaning == "refused";
  const bool is_switch = option.get_items_expected_max() == 0;
  if (!is_switch) {
    made.fallback = option.get_default_str();
    made.value = type.type == "INT" || type.type == "UINT"  ? "N"
                 : type.type == "FLOAT"                     ? "X"
                 : type.type == "TEXT" || type.type.empty() ? "WORD"
                                                            : type.type;
    if (option.get_items_expected_max() > 1 && !made.value.ends_with("...")) made.value += "...";
  }
  if (option.get_group() != "Options") made.section = option.get_group();
  made.value_names = names_by(made.names.empty() ? "" : made.names[0], type, checks);
  return made;
}

/// Lines behind the first paragraph of a description: commands to copy.
std::vector<std::string> examples_of(std::string_view description) {
  std::vector<std::string> lines;
  std::size_t end = description.find("\n\n");
  while (end != description.npos) {
    const std::size_t begin = description.find_first_not_of("\n ", end);
    if (begin == description.npos) break;
    end = description.find('\n', begin);
    lines.emplace_back(description.substr(begin, end - begin));
  }
  return lines;
}

}  // namespace

help::Manual manual_of(const CLI::App& app) {
  const std::string description = app.get_description();
  help::Manual manual{.command = app.get_name(),
                      .summary = description.substr(0, description.find("\n\n")),
                      .takes_run_flags = app.get_allow_extras()};
  if (app.get_parent() != nullptr)
    manual.command = app.get_parent()->get_name() + " " + manual.command;
  std::string usage = manual.command;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    manual.usage.push_back(
        fmt::format("{} {}: {}", app.get_name(), sub->get_name(), sub->get_description()));
    manual.words.push_back(sub->get_name());
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option == app.get_help_ptr()) continue;
    help::Option made = option_of(*option);
    if (option->get_positional()) {  // some of them have a name too
      const std::string name = option->get_name(true, false);
      usage += made.is_required ? " " + name : fmt::format(" [{}]", name);
    }
    manual.options.push_back(std::move(made));
  }
  std::ranges::stable_sort(manual.options, {},
                           [](const help::Option& each) { return !each.is_argument; });
  if (manual.words.empty()) manual.usage.insert(manual.usage.begin(), usage + " [OPTIONS]");
  std::ranges::move(examples_of(description), std::back_inserter(manual.usage));
  return manual;
}

}  // namespace slime::cli
