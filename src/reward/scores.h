#pragma once

/// The native rewards, one function each, as rows of the table in reward.cpp.
///
/// Each is a pure function of the response and the label, linear in the length of the response and
/// bounded in memory. A label that the rule cannot work with is an Error: the sample fails, it does
/// not score 0.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/expected.h"
#include "core/json.h"

namespace slime::reward {

/// 1 when the last boxed answer equals the label (spec 16.2). An empty label scores 0.
Expected<json::value> score_math(std::string_view response, const json::value& label);

/// The same on what follows the last </think>, or lies after ###Response (spec 16.3). A response
/// with neither scores 0.
Expected<json::value> score_deepscaler(std::string_view response, const json::value& label);

/// {"score": 1.0 or -1.0, "acc": bool, "pred": string or null} from the last "Answer: ..." line
/// (spec 16.4). With `strict_box` the last \boxed{} within 100 characters counts instead, compared
/// with the label as it is.
Expected<json::value> score_dapo(std::string_view response, const json::value& label,
                                 bool strict_box = false);
std::string dapo_normal_form(std::string_view answer);

/// Overlap of words (spec 16.5).
struct F1 {
  double f1 = 0;
  double precision = 0;
  double recall = 0;
};
F1 word_overlap(std::string_view prediction, std::string_view truth);
std::string f1_normal_form(std::string_view text);
Expected<json::value> score_f1(std::string_view response, const json::value& label);

/// 1.0 when the letter, or the text, of the right choice is the answer (spec 16.6). `metadata` may
/// have "choices", "valid_letters", "correct_letter", "correct_answer", "answer_text".
Expected<json::value> score_gpqa(std::string_view response, const json::value& label,
                                 const json::object& metadata);
std::optional<char> choice_letter(std::string_view response, std::string_view valid_letters);

/// 1.0 when every instruction of metadata.instruction_id_list is followed, in strict mode
/// (spec 16.7 and appendix C). An instruction that needs data we do not have (NLTK, syllables,
/// languages) is an Error that names it.
Expected<json::value> score_ifbench(std::string_view response, const json::object& metadata);

/// 0 or 1 by the run's seed and the sample's ordinal.
json::value score_random(uint64_t seed, int64_t sample_ordinal);

}  // namespace slime::reward
