#include <fmt/format.h>

#include "reward/answer_equality.h"
#include "reward/boxed.h"
#include "reward/label.h"
#include "reward/math_equality.h"
#include "reward/python_text.h"
#include "reward/scores.h"

namespace slime::reward {
namespace {

/// What Python calls false: null, "", 0, 0.0, false, [] and {}.
bool is_empty(const json::value& label) {
  switch (label.kind()) {
    case json::kind::null:
      return true;
    case json::kind::bool_:
      return !label.get_bool();
    case json::kind::string:
      return label.get_string().empty();
    case json::kind::array:
      return label.get_array().empty();
    case json::kind::object:
      return label.get_object().empty();
    default:
      return label.to_number<double>() == 0;
  }
}

/// What one right answer stands for: itself, or what its box holds.
Expected<std::string> boxed_or_whole(std::string_view answer, std::string_view rule) {
  const std::string_view text = final_answer(answer);
  if (text.find("\\boxed") == std::string_view::npos) return std::string(text);
  const std::optional<std::string_view> content = boxed_content(text);
  if (!content || stripped(*content).empty()) {
    return failure(fmt::format("{}: the box of the label {} holds nothing", rule,
                               shown_label(json::value(json::string(answer)))));
  }
  return std::string(*content);
}

/// 1 or 0, as the original: what a label lacks makes every response wrong.
json::value grade_as_original(std::string_view given, const json::value& label) {
  const std::string text = to_python_string(label);
  std::optional<std::string_view> truth = text;
  if (text.find("\\boxed") != std::string::npos) truth = boxed_content(text);
  return truth && is_correct(given, *truth, Grading::kOriginal) ? 1 : 0;
}

/// What is graded of a response: all that follows its thoughts; nothing when nothing marks that.
std::optional<std::string_view> solution_in(std::string_view response) {
  constexpr std::string_view kThink = "</think>";
  constexpr std::string_view kResponse = "###Response";
  if (const std::size_t think = response.rfind(kThink); think != std::string_view::npos)
    return response.substr(think + kThink.size());
  const std::size_t begin = response.find(kResponse);
  if (begin == std::string_view::npos) return std::nullopt;
  const std::string_view solution = response.substr(begin + kResponse.size());
  return solution.substr(0, solution.find(kResponse));
}

/// 1 when `given` is one of the label's answers by `are_equal`.
Expected<json::value> grade_strictly(const std::optional<std::string_view>& given,
                                     const json::value& label, std::string_view rule,
                                     bool (*are_equal)(std::string_view truth,
                                                       std::string_view given)) {
  return best_score(label, rule, [&](std::string_view answer) -> Expected<json::value> {
    const Expected<std::string> truth = boxed_or_whole(answer, rule);
    if (!truth) return tl::make_unexpected(truth.error());
    return given && are_equal(*truth, *given) ? 1 : 0;
  });
}

}  // namespace

Expected<json::value> score_math(std::string_view response, const json::value& label,
                                 Grading grading) {
  const std::optional<std::string_view> given = extract_answer(response);
  if (grading == Grading::kStrict) return grade_strictly(given, label, "math", are_equal_answers);
  if (is_empty(label)) return 0;
  return given ? grade_as_original(*given, label) : 0;
}

Expected<json::value> score_deepscaler(std::string_view response, const json::value& label,
                                       Grading grading, bool needs_thoughts) {
  if (grading == Grading::kOriginal && !label.is_string()) {
    const Expected<std::string> text = label_text(label, "deepscaler");
    if (!text) return tl::make_unexpected(text.error());
  }
  std::optional<std::string_view> solution = solution_in(response);
  if (!solution && !needs_thoughts) solution = response;
  const std::optional<std::string_view> given = solution ? extract_answer(*solution) : std::nullopt;
  if (grading == Grading::kStrict) {
    // The original's grader with its holes closed; `math` goes beyond it.
    return grade_strictly(given, label, "deepscaler",
                          [](std::string_view truth, std::string_view answer) {
                            return is_correct(answer, truth, Grading::kStrict);
                          });
  }
  if (!given || label == json::value("")) return 0;
  return grade_as_original(*given, label);
}

}  // namespace slime::reward
