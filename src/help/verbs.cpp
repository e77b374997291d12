#include "help/verbs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/nearest_name.h"
#include "help/wrapped.h"

namespace slime::help {
namespace {

constexpr std::string_view kWhatItIs =
    "slime: reinforcement learning for language models, in one program.";

struct OtherWord {
  std::string_view theirs, ours;
};

/// Names that other programs have.
constexpr auto kOtherWords = std::to_array<OtherWord>({
    {"sft", "train"},         {"rl", "train"},         {"grpo", "train"},
    {"dpo", "train"},         {"ppo", "train"},        {"finetune", "train"},
    {"fine-tune", "train"},   {"learn", "train"},      {"run", "train"},
    {"evaluate", "eval"},     {"evals", "eval"},       {"test", "eval"},
    {"benchmark", "bench"},   {"infer", "generate"},   {"inference", "generate"},
    {"complete", "generate"}, {"dashboard", "view"},   {"ui", "view"},
    {"web", "view"},          {"show", "view"},        {"watch", "view"},
    {"pull", "download"},     {"get", "download"},     {"fetch", "download"},
    {"convert", "export"},    {"merge", "export"},     {"push", "export"},
    {"env", "doctor"},        {"verify", "check"},     {"diagnose", "doctor"},
    {"info", "inspect"},      {"list", "runs"},        {"ls", "runs"},
    {"dataset", "data"},      {"datasets", "data"},    {"talk", "chat"},
    {"reward", "score"},      {"grade", "score"},      {"server", "serve"},
    {"api", "serve"},         {"vllm-serve", "serve"},
});

using Rows = std::vector<std::pair<std::string, std::string>>;
}  // namespace

std::string front_page(std::span<const Verb> verbs, const Style& style) {
  Rows rows;
  for (const Verb& verb : verbs)
    if (verb.is_first) rows.emplace_back(fmt::format("slime {}", verb.name), verb.summary);
  Rows more{{"slime help", "all commands"},
            {"slime help train", "the options of one; so does slime train --help"}};
  if (std::ranges::find(verbs, "doctor", &Verb::name) != verbs.end())
    more.emplace_back("slime doctor", "is this machine ready?");
  return wrapped(kWhatItIs, style.width, 0) + "\n\n" + in_columns(rows, style.width) + "\n" +
         in_columns(more, style.width);
}

std::string list_of_verbs(std::span<const Verb> verbs, const Style& style) {
  std::vector<std::pair<std::string_view, Rows>> sections;
  for (const Verb& verb : verbs) {
    if (verb.section.empty()) continue;
    auto at =
        std::ranges::find(sections, verb.section, [](const auto& each) { return each.first; });
    if (at == sections.end()) at = sections.insert(at, {verb.section, {}});
    at->second.emplace_back(verb.name, verb.summary);
  }
  std::string text = wrapped(kWhatItIs, style.width, 0) + "\n\nUsage: slime COMMAND [OPTIONS]\n";
  for (const auto& [title, rows] : sections)
    text += "\n" + title_line(title, style) + in_columns(rows, style.width);
  return text + "\n" +
         wrapped(
             "slime help COMMAND, or slime COMMAND --help, lists a command's options; "
             "slime completion SHELL lets the Tab key know them.",
             style.width, 0) +
         "\n";
}

std::optional<std::string_view> verb_meant_by(std::string_view word, std::span<const Verb> verbs) {
  std::vector<std::string_view> names;
  for (const Verb& verb : verbs)
    if (!verb.section.empty()) names.push_back(verb.name);
  for (const OtherWord& other : kOtherWords)
    if (other.theirs == word && std::ranges::find(names, other.ours) != names.end())
      return other.ours;
  return nearest_name(word, names);
}

}  // namespace slime::help
