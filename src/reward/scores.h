#pragma once

/// The native rewards, one function each, as rows of the table in reward.cpp.
///
/// Each is a pure function of the response and the label, linear in the length of the response
/// (what costs more has a limit of its own) and bounded in memory. A label by which no response
/// could be right is an Error: the sample fails, it does not score 0. A label may hold several right
/// answers (reward/label.h); the best score counts. With Grading::kOriginal a label that the original
/// takes for one that nothing equals is usable, and scores 0.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/expected.h"
#include "core/json.h"
#include "reward/grading.h"

namespace slime::reward {

/// 1 when the last boxed answer equals the label (spec 16.2); strictly, the number 0 is a label.
Expected<json::value> score_math(std::string_view response, const json::value& label,
                                 Grading grading = Grading::kStrict);

/// The same on what follows the last </think>, or lies after ###Response (spec 16.3). A response
/// with neither scores 0 if it `needs_thoughts`, else it is graded whole.
Expected<json::value> score_deepscaler(std::string_view response, const json::value& label,
                                       Grading grading = Grading::kStrict,
                                       bool needs_thoughts = true);

/// 1 when the number that the response states (behind "####", in its last box, or its last number)
/// is the label's, which is a number or a solution that ends with "#### number".
Expected<json::value> score_gsm8k(std::string_view response, const json::value& label);

/// {"score": 1.0 or -1.0, "acc": bool, "pred": string or null} from the last "Answer: ..." line
/// (spec 16.4). Strictly, the digits of a number have to stand together in the answer: commas and
/// blanks only between thousands, no words, no equation of two different numbers.
Expected<json::value> score_dapo(std::string_view response, const json::value& label,
                                 Grading grading = Grading::kStrict);
/// The same of the answer in the last box instead.
Expected<json::value> score_boxed_dapo(std::string_view response, const json::value& label,
                                       Grading grading = Grading::kStrict);

/// The original's other mode (strict_box_verify): the last \boxed{} within 100 characters, compared
/// with the label letter by letter.
Expected<json::value> score_dapo_box(std::string_view response, const json::value& label);
std::string dapo_normal_form(std::string_view answer);

/// Overlap of words (spec 16.5).
struct F1 {
  double f1 = 0;
  double precision = 0;
  double recall = 0;
};
F1 word_overlap(std::string_view prediction, std::string_view truth);
std::string f1_normal_form(std::string_view text);
Expected<json::value> score_f1(std::string_view response, const json::value& label,
                               Grading grading = Grading::kStrict);

/// 1.0 when the letter, or the text, of the right choice is the answer (spec 16.6). `metadata` may
/// have "choices", "valid_letters", "correct_letter", "correct_answer", "answer_text". Strictly, a
/// letter stands alone, a text is found as whole words, longer than one letter and without the text
/// of another choice.
std::optional<std::string> gpqa_label_problem(const json::value& label,
                                              const json::object& metadata, Grading grading);
Expected<json::value> score_gpqa(std::string_view response, const json::value& label,
                                 const json::object& metadata, Grading grading = Grading::kStrict);
std::optional<char> choice_letter(std::string_view response, std::string_view valid_letters,
                                  Grading grading = Grading::kStrict);

/// 1.0 when every instruction of metadata.instruction_id_list is followed, in strict mode
/// (spec 16.7 and appendix C). An instruction that needs what we do not have (a tagger, syllables,
/// a language detector) or lacks a parameter is an Error that says so.
std::optional<std::string> ifbench_label_problem(const json::object& metadata, Grading grading);
Expected<json::value> score_ifbench(std::string_view response, const json::object& metadata,
                                    Grading grading = Grading::kStrict);

/// 0 or 1 by the run's seed and the sample's ordinal.
json::value score_random(uint64_t seed, int64_t sample_ordinal);

}  // namespace slime::reward
