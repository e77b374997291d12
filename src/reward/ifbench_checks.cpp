// The table of instructions, from its parts, and those that have no check.

#include "reward/ifbench_checks.h"

#include <algorithm>
#include <array>
#include <utility>

namespace slime::reward {
namespace {

using View = std::string_view;

constexpr auto kMissing = std::to_array<std::pair<View, View>>({
    {"words:start_verb", "a part-of-speech tagger (a trained model)"},
    {"words:odd_even_syllables", "a dictionary of syllables"},
    {"language:response_language", "a language detector"},
    {"change_case:english_capital", "a language detector"},
    {"change_case:english_lowercase", "a language detector"},
});

}  // namespace

InstructionCheck find_instruction(View id) {
  for (const auto rows : {word_instructions(), sentence_instructions(), document_instructions(),
                          format_instructions(), classic_instructions()}) {
    const auto found = std::ranges::find(rows, id, &Instruction::id);
    if (found != rows.end()) return found->check;
  }
  return nullptr;
}

View missing_resource(View id) {
  const auto* found = std::ranges::find(kMissing, id, &std::pair<View, View>::first);
  return found == kMissing.end() ? View() : found->second;
}

}  // namespace slime::reward
