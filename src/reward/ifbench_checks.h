#pragma once

/// IFBench and IFEval: one function per instruction that a response should follow (spec appendix C;
/// IFBench, arXiv 2507.02833; IFEval, arXiv 2311.07911). Words are separated by white space.

#include <string_view>
#include <vector>

#include "core/json.h"

namespace slime::reward {

/// `arguments` is the instruction's own map of parameters. Throws ConfigError naming a parameter
/// that is missing or of the wrong type.
using InstructionCheck = bool (*)(std::string_view response, const json::object& arguments);

/// Null for an id without a check here.
InstructionCheck find_instruction(std::string_view id);

/// Whether the id is of a family of the benchmarks: then what is missing here needs data that is
/// not part of this program (NLTK, syllables, languages).
bool is_known_instruction(std::string_view id);

}  // namespace slime::reward
