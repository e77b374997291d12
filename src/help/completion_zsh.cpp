// Completion for zsh.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "help/completion.h"

namespace slime::help {
namespace {

constexpr std::string_view kZshHead = R"sh(#compdef slime
# Completion of slime for zsh. For this shell, behind compinit: source <(slime completion zsh)

__slime_names() {  # $1: models or datasets; names in the cache of Hugging Face
  local root=${HF_HUB_CACHE:-${HF_HOME:-$HOME/.cache/huggingface}/hub} folder
  local -a names
  for folder in $root/$1--*(N/); do
    names+=(${${${folder:t}#$1--}/--//})
  done
  (( $#names )) && compadd -a names
}
__slime_model() { __slime_names models; _files -/ }
__slime_data() { __slime_names datasets; _files }
__slime_run() {
  local -a runs
  runs=(run.json(N) */run.json(N) */*/run.json(N))
  runs=(${runs:h})
  (( $#runs )) && compadd -f -a runs
  _files -/
}

_slime() {
  local -a verbs
)sh";

constexpr std::string_view kZshMiddle = R"sh(
  if (( CURRENT == 2 )); then
    _describe -t commands command verbs
    return
  fi
  if [[ $words[2] == help ]]; then
    (( CURRENT == 3 )) && _describe -t commands command verbs
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
)sh";

constexpr std::string_view kZshEnd = R"sh(  esac
}

# In the function folder of zsh this file is the function; behind source it is a definition.
if [[ $funcstack[1] == _slime ]]; then
  _slime "$@"
else
  compdef _slime slime
fi
)sh";

/// In single quotes, without the characters that a specification of _arguments is built of.
std::string quoted_for_zsh(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else if (c == '[' || c == ']' || c == '\\')
      out += fmt::format("\\{}", c);
    else
      out += c == ':' ? ',' : c;
  }
  return out;
}

std::string_view action_of(Names names) {
  switch (names) {
    case Names::kFile:
      return "_files";
    case Names::kFolder:
      return "_files -/";
    case Names::kModel:
      return "__slime_model";
    case Names::kRun:
      return "__slime_run";
    case Names::kData:
      return "__slime_data";
    case Names::kNothing:
      return " ";
  }
  return " ";
}

std::string action_of(const Option& option) {
  return option.choices.empty() ? std::string(action_of(option.value_names))
                                : fmt::format("({})", fmt::join(option.choices, " "));
}

std::string specifications_of(const Option& option) {
  std::string text;
  for (const std::string& name : option.names) {
    const bool is_long = name.starts_with("--");
    const std::string action = action_of(option);
    text += fmt::format(
        " \\\n        '*{}{}[{}]{}'", name, is_long && !option.value.empty() ? "=" : "",
        quoted_for_zsh(short_meaning(option)),
        option.value.empty() ? "" : fmt::format(":{}:{}", quoted_for_zsh(option.value), action));
  }
  return text;
}

}  // namespace

std::string zsh_completion(std::span<const CompletedVerb> verbs) {
  std::string text(kZshHead);
  text += "  verbs=(\n";
  for (const CompletedVerb& each : verbs)
    if (!each.verb.section.empty())
      text += fmt::format("    '{}:{}'\n", each.verb.name, quoted_for_zsh(each.verb.summary));
  text += "    'help:the options of a command'\n  )";
  text += kZshMiddle;
  for (const CompletedVerb& each : verbs) {
    if (each.verb.section.empty()) continue;
    text += fmt::format("    {})\n      _arguments", each.verb.name);
    for (const Option& option : offered_options(each.manual)) text += specifications_of(option);
    const Option argument = argument_of(each.manual);
    if (!argument.value.empty())
      text += fmt::format(" \\\n        '*:{}:{}'", argument.value, action_of(argument));
    text += "\n      ;;\n";
  }
  text += kZshEnd;
  return text;
}

}  // namespace slime::help
