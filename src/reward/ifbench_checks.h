#pragma once

/// IFBench and IFEval: one function per instruction that a response should follow (spec appendix C;
/// IFBench, arXiv 2507.02833; IFEval, arXiv 2311.07911). Words are separated by white space.

#include <span>
#include <string_view>

#include "core/json.h"

namespace slime::reward {

/// `arguments` is the instruction's own map of parameters. Throws ConfigError naming a parameter
/// that is missing or of the wrong type.
using InstructionCheck = bool (*)(std::string_view response, const json::object& arguments);

struct Instruction {
  std::string_view id;
  InstructionCheck check;
};

/// Null for an id without a check here.
InstructionCheck find_instruction(std::string_view id);

/// What the check of an id of the benchmarks needs and this program does not have ("a
/// part-of-speech tagger"); empty for every other id.
std::string_view missing_resource(std::string_view id);

// The parts of the table, each in a file of its own.

std::span<const Instruction> word_instructions();      // counts, words and their letters
std::span<const Instruction> sentence_instructions();  // sentences, tokens and lists of words
std::span<const Instruction> document_instructions();  // tables, questions, sections
std::span<const Instruction> format_instructions();    // brackets, lines, lists; what is repeated
std::span<const Instruction> classic_instructions();   // those of IFEval that need no more

}  // namespace slime::reward
