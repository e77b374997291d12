// Completion for fish.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "help/completion.h"

namespace slime::help {
namespace {

constexpr std::string_view kFishHead =
    R"sh(# Completion of slime for fish. For this shell: slime completion fish | source

function __slime_is_verb
    set -l words (commandline -opc)
    test (count $words) -gt 1; and test $words[2] = $argv[1]
end
function __slime_has_no_verb
    set -l words (commandline -opc)
    test (count $words) -eq 1; or begin
        test (count $words) -eq 2; and test $words[2] = help
    end
end
function __slime_names
    set -l root $HF_HUB_CACHE
    test -n "$root"; or begin
        set -q HF_HOME; and set root $HF_HOME/hub; or set root $HOME/.cache/huggingface/hub
    end
    for folder in $root/$argv[1]--*/
        string replace -r -- '--' / (string replace -r '^.*/'$argv[1]'--' '' (string trim -r -c / $folder))
    end
end
function __slime_runs
    for file in run.json */run.json */*/run.json
        test -f $file; and string replace -r 'run.json$' '' $file
    end
end

complete -c slime -f
)sh";

std::string quoted_for_fish(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

/// Words behind an option, as arguments of complete.
std::string values_of(const Option& option) {
  if (option.value.empty()) return "";
  if (!option.choices.empty())
    return fmt::format(" -x -a '{}'",
                       quoted_for_fish(fmt::format("{}", fmt::join(option.choices, " "))));
  switch (option.value_names) {
    case Names::kFile:
      return " -r -F";
    case Names::kFolder:
      return " -x -a '(__fish_complete_directories)'";
    case Names::kModel:
      return " -x -a '(__slime_names models; __fish_complete_directories)'";
    case Names::kRun:
      return " -x -a '(__slime_runs; __fish_complete_directories)'";
    case Names::kData:
      return " -r -F -a '(__slime_names datasets)'";
    case Names::kNothing:
      return " -x";
  }
  return "";
}

}  // namespace

std::string fish_completion(std::span<const CompletedVerb> verbs) {
  std::string text(kFishHead);
  for (const CompletedVerb& each : verbs) {
    if (each.verb.section.empty()) continue;
    text += fmt::format("complete -c slime -n __slime_has_no_verb -a {} -d '{}'\n", each.verb.name,
                        quoted_for_fish(each.verb.summary));
  }
  text += "complete -c slime -n __slime_has_no_verb -a help -d 'the options of a command'\n";
  for (const CompletedVerb& each : verbs) {
    if (each.verb.section.empty()) continue;
    const std::string where =
        fmt::format("complete -c slime -n '__slime_is_verb {}'", each.verb.name);
    for (const Option& option : offered_options(each.manual)) {
      std::string names;
      for (const std::string& name : option.names)
        names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      text += fmt::format("{}{}{} -d '{}'\n", where, names, values_of(option),
                          quoted_for_fish(short_meaning(option)));
    }
    const Option argument = argument_of(each.manual);
    if (!argument.value.empty()) text += where + values_of(argument) + "\n";
  }
  return text;
}

}  // namespace slime::help
