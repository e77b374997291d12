#include "help/completion.h"

#include <algorithm>

namespace slime::help {
namespace {

/// Columns of a description next to an option in a shell's list.
constexpr std::size_t kLongest = 70;

}  // namespace

std::optional<std::string> completion_script(std::string_view shell,
                                             std::span<const CompletedVerb> verbs) {
  if (shell == "bash") return bash_completion(verbs);
  if (shell == "zsh") return zsh_completion(verbs);
  if (shell == "fish") return fish_completion(verbs);
  return std::nullopt;
}

std::vector<Option> offered_options(const Manual& manual) {
  std::vector<Option> options;
  for (const Option& option : manual.options)
    if (!option.is_idle && !option.is_argument) options.push_back(option);
  options.push_back({.names = {"--help", "-h"},
                     .value = "WORD",
                     .meaning = "options; behind it a topic, an option, a word, or all",
                     .choices = words_of_help(manual)});
  return options;
}

Option argument_of(const Manual& manual) {
  if (!manual.words.empty()) return {.names = {}, .value = "COMMAND", .choices = manual.words};
  for (const Option& option : manual.options) {
    const bool is_model = option.is_required && option.value_names == Names::kModel;
    if (!option.is_argument && !is_model) continue;
    const bool is_known = option.value_names != Names::kNothing || !option.choices.empty();
    return {.names = {},
            .value = is_known ? "ARGUMENT" : "",
            .choices = option.choices,
            .value_names = option.value_names};
  }
  return {.names = {}};
}

std::vector<std::string> words_of_help(const Manual& manual) {
  std::vector<std::string> words{"all"};
  for (const Topic& topic : manual.topics) words.push_back(topic.word);
  return words;
}

std::string short_meaning(const Option& option) {
  std::string text(first_clause(option.meaning));
  std::ranges::replace(text, '\n', ' ');
  if (text.size() > kLongest) {
    std::size_t end = text.rfind(' ', kLongest);
    if (end == text.npos) end = kLongest;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + " ...";
  }
  return text;
}

}  // namespace slime::help
