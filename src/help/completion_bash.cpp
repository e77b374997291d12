// Completion for bash. No package is needed but bash itself, version 4.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "help/completion.h"

namespace slime::help {
namespace {

constexpr std::string_view kBashHead =
    R"sh(# Completion of slime for bash. For this shell: source <(slime completion bash)

__slime_names() {  # $1: models or datasets; names in the cache of Hugging Face
  local root="${HF_HUB_CACHE:-${HF_HOME:-$HOME/.cache/huggingface}/hub}" folder name
  for folder in "$root/$1"--*/; do
    [ -d "$folder" ] || continue
    name=${folder%/}
    name=${name##*/"$1"--}
    printf '%s\n' "${name/--//}"
  done
}

__slime_runs() {
  local file
  for file in run.json */run.json */*/run.json; do
    [ -f "$file" ] && printf '%s\n' "${file%run.json}"
  done
}

__slime_reply() {  # $1: kind of value, $2: words of it, $3: what is typed
  case $1 in
    words) mapfile -t COMPREPLY < <(compgen -W "$2" -- "$3") ;;
    file) mapfile -t COMPREPLY < <(compgen -f -- "$3") ;;
    folder) mapfile -t COMPREPLY < <(compgen -d -- "$3") ;;
    run) mapfile -t COMPREPLY < <(compgen -W "$(__slime_runs)" -- "$3"; compgen -d -- "$3") ;;
    model) mapfile -t COMPREPLY < <(compgen -W "$(__slime_names models)" -- "$3"; compgen -d -- "$3") ;;
    data) mapfile -t COMPREPLY < <(compgen -W "$(__slime_names datasets)" -- "$3"; compgen -f -- "$3") ;;
  esac
  case $1 in words | value) ;; *) compopt -o filenames 2>/dev/null ;; esac
}
)sh";

constexpr std::string_view kBashEnd = R"sh(
_slime() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  local options= topics= arguments= argument_words= kind= words= verb=${COMP_WORDS[1]} at=1
  COMPREPLY=()
  # bash cuts --flag=value in three.
  if [ "$word" = = ]; then word=; elif [ "$before" = = ]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi
  if [ "$verb" = help ]; then at=2 verb=${COMP_WORDS[2]}; fi
  if [ "$COMP_CWORD" -le "$at" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$__slime_verbs help" -- "$word")
    return
  fi
  declare -F "__slime_of_$verb" >/dev/null || return
  "__slime_of_$verb" "$before"
  if [ "$at" = 2 ]; then
    mapfile -t COMPREPLY < <(compgen -W "$topics $options" -- "$word")
  elif [ -n "$kind" ]; then
    __slime_reply "$kind" "$words" "$word"
  elif [[ $word == -* || -z $arguments ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  else
    __slime_reply "$arguments" "$argument_words" "$word"
  fi
}

complete -F _slime slime
)sh";

std::string_view kind_of(Names names) {
  switch (names) {
    case Names::kFile:
      return "file";
    case Names::kFolder:
      return "folder";
    case Names::kModel:
      return "model";
    case Names::kRun:
      return "run";
    case Names::kData:
      return "data";
    case Names::kNothing:
      return "value";
  }
  return "value";
}

std::string function_of(const CompletedVerb& each) {
  std::vector<std::string> options;
  std::map<std::string, std::string> cases;  // by what they do: "kind=file", the options
  const std::vector<Option> offered = offered_options(each.manual);
  for (const Option& option : offered) {
    options.insert(options.end(), option.names.begin(), option.names.end());
    if (option.value.empty()) continue;
    const std::string does =
        option.choices.empty()
            ? fmt::format("kind={}", kind_of(option.value_names))
            : fmt::format("kind=words words='{}'", fmt::join(option.choices, " "));
    std::string& names = cases[does];
    names += fmt::format("{}{}", names.empty() ? "" : " | ", fmt::join(option.names, " | "));
  }
  const Option argument = argument_of(each.manual);
  std::string text = fmt::format(
      "\n__slime_of_{}() {{\n  options='{}'\n  topics='{}'\n  arguments={}\n"
      "  argument_words='{}'\n  case $1 in\n",
      each.verb.name, fmt::join(options, " "), fmt::join(words_of_help(each.manual), " "),
      argument.value.empty()     ? ""
      : argument.choices.empty() ? kind_of(argument.value_names)
                                 : "words",
      fmt::join(argument.choices, " "));
  for (const auto& [does, names] : cases) text += fmt::format("    {}) {} ;;\n", names, does);
  return text + "  esac\n}\n";
}

}  // namespace

std::string bash_completion(std::span<const CompletedVerb> verbs) {
  std::vector<std::string_view> names;
  std::string functions;
  for (const CompletedVerb& each : verbs) {
    if (each.verb.section.empty()) continue;
    names.push_back(each.verb.name);
    functions += function_of(each);
  }
  return fmt::format("{}\n__slime_verbs='{}'\n{}{}", kBashHead, fmt::join(names, " "), functions,
                     kBashEnd);
}

}  // namespace slime::help
