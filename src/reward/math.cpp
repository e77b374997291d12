#include <fmt/format.h>

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

/// What a usable label stands for: itself, or what its box holds.
Expected<std::string> boxed_or_whole(const json::value& label, std::string_view rule) {
  Expected<std::string> text = label_text(label, rule);
  if (!text || text->find("\\boxed") == std::string::npos) return text;
  const std::optional<std::string_view> content = boxed_content(*text);
  if (!content || stripped(*content).empty()) {
    return failure(
        fmt::format("{}: the box of the label {} holds nothing", rule, shown_label(label)));
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

json::value grade_strictly(const std::optional<std::string_view>& given, std::string_view truth) {
  return given && is_correct(*given, truth, Grading::kStrict) ? 1 : 0;
}

std::optional<std::string> problem_of(const Expected<std::string>& truth) {
  if (truth) return std::nullopt;
  return truth.error().message;
}

}  // namespace

std::optional<std::string> math_label_problem(const json::value& label, Grading grading) {
  if (grading == Grading::kOriginal) return std::nullopt;
  return problem_of(boxed_or_whole(label, "math"));
}

Expected<json::value> score_math(std::string_view response, const json::value& label,
                                 Grading grading) {
  if (grading == Grading::kOriginal) {
    if (is_empty(label)) return 0;
    const std::optional<std::string_view> given = extract_answer(response);
    return given ? grade_as_original(*given, label) : 0;
  }
  const Expected<std::string> truth = boxed_or_whole(label, "math");
  if (!truth) return tl::make_unexpected(truth.error());
  return grade_strictly(extract_answer(response), *truth);
}

std::optional<std::string> deepscaler_label_problem(const json::value& label, Grading grading) {
  if (grading == Grading::kStrict) return problem_of(boxed_or_whole(label, "deepscaler"));
  if (label.is_string()) return std::nullopt;
  return problem_of(label_text(label, "deepscaler"));
}

Expected<json::value> score_deepscaler(std::string_view response, const json::value& label,
                                       Grading grading) {
  if (const auto problem = deepscaler_label_problem(label, grading)) return failure(*problem);
  const std::optional<std::string_view> solution = solution_in(response);
  if (!solution) return 0;
  const std::optional<std::string_view> given = extract_answer(*solution);
  if (grading == Grading::kStrict)
    return grade_strictly(given, *boxed_or_whole(label, "deepscaler"));
  if (!given || label == json::value("")) return 0;
  return grade_as_original(*given, label);
}

}  // namespace slime::reward
