#include "help/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/lower_case.h"
#include "core/nearest_name.h"
#include "help/wrapped.h"

namespace slime::help {
namespace {

constexpr std::size_t kMostFound = 30;

std::string lower(std::string_view text) { return lower_case(std::string(text)); }

/// "learning_rate" and "--Learning-Rate" are one word.
std::string bare(std::string_view word) {
  const std::size_t letter = word.find_first_not_of('-');
  std::string out = lower(letter == word.npos ? word : word.substr(letter));
  std::ranges::replace(out, '_', '-');
  return out;
}

std::string left_of(const Option& option) {
  std::string left = fmt::format("{}", fmt::join(option.names, ", "));
  if (!option.value.empty() && !option.is_argument) left += " " + option.value;
  return left;
}

std::string right_of(const Option& option, bool is_brief) {
  std::string right(is_brief ? first_clause(option.meaning) : std::string_view(option.meaning));
  if (!option.choices.empty() && option.meaning.find(option.choices.back()) == std::string::npos)
    right += fmt::format("{}{}", right.empty() ? "" : ": ", fmt::join(option.choices, ", "));
  if (option.is_required) right += " (required)";
  if (!option.fallback.empty()) right += fmt::format(" [{}]", option.fallback);
  return right;
}

std::string list_of(const std::vector<const Option*>& options, const Style& style, bool is_brief) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Option* option : options)
    rows.emplace_back(left_of(*option), right_of(*option, is_brief));
  return in_columns(rows, style.width);
}

std::vector<const Option*> named(const Manual& manual, const std::vector<std::string>& names) {
  std::vector<const Option*> options;
  for (const std::string& name : names)
    if (const Option* option = manual.find(name)) options.push_back(option);
  return options;
}

std::string head_of(const Manual& manual, const Style& style) {
  std::string text = wrapped(manual.command + ": " + manual.summary, style.width, 0) + "\n";
  if (!manual.usage.empty()) text += '\n';
  for (const std::string& line : manual.usage)
    text += "  " + wrapped(line, style.width, 6, 2) + "\n";
  return text;
}

/// Options in the sections that they name, in the order in which those first appear.
std::string by_section(const std::vector<const Option*>& options, const Style& style) {
  std::vector<std::pair<std::string, std::vector<const Option*>>> sections;
  for (const Option* option : options) {
    std::string title = option->section;
    if (title.empty()) title = option->is_argument ? "Arguments" : "Options";
    auto at = std::ranges::find(sections, title, [](const auto& each) { return each.first; });
    if (at == sections.end()) at = sections.insert(at, {title, {}});
    at->second.push_back(option);
  }
  std::string text;
  for (const auto& [title, members] : sections)
    text += "\n" + title_line(title, style) + list_of(members, style, false);
  return text;
}

std::string more_of(const Manual& manual, const Style& style) {
  std::vector<std::pair<std::string, std::string>> rows;
  if (!manual.topics.empty()) {
    std::vector<std::string_view> words;
    for (const Topic& topic : manual.topics) words.emplace_back(topic.word);
    rows.emplace_back("--help TOPIC", fmt::format("{}", fmt::join(words, ", ")));
  }
  rows.emplace_back("--help --FLAG", "everything about one of them");
  rows.emplace_back("--help WORD", "a search");
  const auto idle = std::ranges::count_if(manual.options, &Option::is_idle);
  if (!manual.first.empty() || idle > 0) {
    rows.emplace_back(
        "--help all",
        fmt::format("all {}{}", manual.options.size(),
                    idle > 0 ? fmt::format(", {} of them without effect here", idle) : ""));
  }
  return "\n" + title_line("More", style) + in_columns(rows, style.width);
}

std::string overview(const Manual& manual, const Style& style) {
  std::string text = head_of(manual, style);
  if (manual.first.empty()) {
    std::vector<const Option*> options;
    for (const Option& option : manual.options)
      if (!option.is_idle) options.push_back(&option);
    text += by_section(options, style);
  }
  for (const Section& section : manual.first)
    text += "\n" + title_line(section.title, style) +
            list_of(named(manual, section.names), style, true);
  return text + more_of(manual, style);
}

std::string all_of(const Manual& manual, const Style& style) {
  std::vector<const Option*> options;
  for (const Option& option : manual.options) options.push_back(&option);
  return head_of(manual, style) + by_section(options, style);
}

std::string topic_page(const Manual& manual, const Topic& topic, const Style& style) {
  std::vector<const Option*> options;
  std::size_t num_idle = 0;
  for (const Option* option : named(manual, topic.names)) {
    if (option->is_idle)
      ++num_idle;
    else
      options.push_back(option);
  }
  std::string text = title_line(fmt::format("{}: {}", manual.command, topic.title), style) +
                     list_of(options, style, false);
  std::string end;
  if (num_idle > 0) end += fmt::format("{} more have no effect here (--help all). ", num_idle);
  if (!topic.page.empty()) end += fmt::format("Page: {}.", topic.page);
  if (!end.empty()) text += "\n" + wrapped(end, style.width, 0) + "\n";
  return text;
}

std::string option_page(const Manual& manual, const Option& option, const Style& style) {
  std::string text = title_line(left_of(option), style);
  const auto add = [&](const std::string& line) {
    text += "  " + wrapped(line, style.width, 2, 2) + "\n";
  };
  if (!option.meaning.empty()) add(option.meaning);
  if (!option.choices.empty()) add(fmt::format("Allowed: {}.", fmt::join(option.choices, ", ")));
  if (option.is_required) add("Required.");
  if (!option.is_argument)
    add(option.value.empty()      ? "A switch: off where it is not given."
        : option.fallback.empty() ? "Default: none."
                                  : fmt::format("Default: {}.", option.fallback));
  if (!option.range.empty()) add(fmt::format("Range: {}.", option.range));
  if (manual.details)
    for (const std::string& paragraph : manual.details(option)) add(paragraph);
  std::vector<std::string_view> topics;
  std::vector<std::string_view> pages;
  for (const Topic& topic : manual.topics) {
    if (std::ranges::none_of(option.names, [&](const std::string& name) {
          return std::ranges::find(topic.names, name) != topic.names.end();
        }))
      continue;
    topics.emplace_back(topic.word);
    if (!topic.page.empty() && std::ranges::find(pages, topic.page) == pages.end())
      pages.emplace_back(topic.page);
  }
  if (!topics.empty())
    add(fmt::format("Among: {} --help {}.", manual.command, fmt::join(topics, ", ")));
  if (!pages.empty()) add(fmt::format("Pages: {}.", fmt::join(pages, ", ")));
  return text;
}

/// Those with the word in their names, then those with it in their meaning; of both, options without effect last.
std::vector<const Option*> found_by(const Manual& manual, const std::string& word) {
  std::vector<std::pair<int, const Option*>> found;
  const std::string wanted = bare(word);
  std::string phrase = wanted;
  std::ranges::replace(phrase, '-', ' ');
  for (const Option& option : manual.options) {
    const bool in_name = std::ranges::any_of(option.names, [&](const std::string& name) {
      return bare(name).find(wanted) != std::string::npos;
    });
    const bool in_choice = std::ranges::any_of(
        option.choices, [&](const std::string& choice) { return bare(choice) == wanted; });
    const std::string text = lower(option.meaning);
    const bool in_text = text.find(wanted) != text.npos || text.find(phrase) != text.npos;
    if (in_name || in_choice || in_text)
      found.emplace_back((in_name || in_choice ? 0 : 1) + (option.is_idle ? 2 : 0), &option);
  }
  std::ranges::stable_sort(found, {}, [](const auto& each) { return each.first; });
  std::vector<const Option*> options;
  for (const auto& [rank, option] : found) options.push_back(option);
  return options;
}

Answer search(const Manual& manual, const std::string& word, const Style& style) {
  std::vector<const Option*> found = found_by(manual, word);
  const std::string hint = manual.hint ? manual.hint(word) : "";
  if (found.empty()) {
    std::string meant = hint;
    if (meant.empty()) {
      std::vector<std::string_view> names;
      for (const Topic& topic : manual.topics) names.emplace_back(topic.word);
      for (const Option& option : manual.options)
        for (const std::string& name : option.names) names.emplace_back(name);
      auto nearest = nearest_name(word, names);
      const std::string with_dashes = "--" + bare(word);
      if (!nearest) nearest = nearest_name(with_dashes, names);
      if (!nearest && manual.takes_run_flags)
        meant = fmt::format("; the flags of a run: slime train --help {}", word);
      if (nearest) meant = fmt::format("; did you mean {}?", *nearest);
    }
    return {wrapped(fmt::format("{}: nothing about \"{}\"{}", manual.command, word, meant),
                    style.width, 0) +
                "\n" + more_of(manual, style),
            false};
  }
  std::string title = fmt::format(
      "{}: {} with \"{}\"{}", manual.command,
      found.size() == 1 ? "one option" : fmt::format("{} options", found.size()), word, hint);
  const std::size_t more = found.size() > kMostFound ? found.size() - kMostFound : 0;
  found.resize(found.size() - more);
  std::string text = title_line(title, style) + list_of(found, style, false);
  if (more > 0) text += fmt::format("\nand {} more: --help all\n", more);
  return {std::move(text), true};
}

}  // namespace

std::string title_line(std::string_view title, const Style& style) {
  return style.has_color ? fmt::format("\x1b[1m{}\x1b[0m\n", title) : fmt::format("{}\n", title);
}

bool Option::is_named(std::string_view name) const {
  return std::ranges::find(names, name) != names.end();
}

const Option* Manual::find(std::string_view name) const {
  const auto option =
      std::ranges::find_if(options, [&](const Option& each) { return each.is_named(name); });
  return option == options.end() ? nullptr : &*option;
}

Answer answer(const Manual& manual, std::span<const std::string> words, const Style& style) {
  if (words.empty()) return {overview(manual, style)};
  std::string text;
  bool is_found = true;
  for (const std::string& word : words) {
    if (!text.empty()) text += '\n';
    if (word == "all") {
      text += all_of(manual, style);
      continue;
    }
    const std::string wanted = bare(word);
    const auto topic = std::ranges::find(manual.topics, wanted, &Topic::word);
    const Option* option = manual.find(word);
    if (option == nullptr) option = manual.find("--" + wanted);
    if (option == nullptr && !word.starts_with("-"))
      for (const Option& each : manual.options)
        if (each.is_argument && bare(each.names[0]) == wanted) option = &each;
    if (topic != manual.topics.end() && !word.starts_with("-")) {
      text += topic_page(manual, *topic, style);
    } else if (option != nullptr) {
      text += option_page(manual, *option, style);
    } else {
      Answer found = search(manual, word, style);
      text += found.text;
      is_found = is_found && found.is_found;
    }
  }
  return {std::move(text), is_found};
}

std::optional<std::vector<std::string>> words_behind_help(std::span<const std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word.starts_with("--help=")) return std::vector<std::string>{word.substr(7)};
    if (word != "--help" && word != "-h") continue;
    const auto behind = arguments.subspan(i + 1);
    if (i == 0 || behind.size() == 1) return std::vector<std::string>(behind.begin(), behind.end());
    if (behind.empty() && i == 1 && arguments[0].starts_with("--"))  // slime train --lr --help
      return std::vector<std::string>{arguments[0]};
    return std::vector<std::string>{};
  }
  return std::nullopt;
}

json::object to_json(const Manual& manual) {
  json::array options;
  for (const Option& option : manual.options) {
    const auto list = [](const std::vector<std::string>& words) {
      return json::array(words.begin(), words.end());
    };
    options.push_back(json::object{{"names", list(option.names)},
                                   {"value", option.value},
                                   {"meaning", option.meaning},
                                   {"default", option.fallback},
                                   {"choices", list(option.choices)},
                                   {"is_argument", option.is_argument},
                                   {"is_required", option.is_required},
                                   {"has_effect", !option.is_idle}});
  }
  return {
      {"command", manual.command}, {"summary", manual.summary}, {"options", std::move(options)}};
}

std::string_view first_clause(std::string_view meaning) {
  const std::size_t end = std::min(meaning.find(';'), meaning.find(" (", 1));
  return meaning.substr(0, std::min(end, meaning.find(". ")));
}

}  // namespace slime::help
