#include "reward/boxed.h"
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

/// 1 or 0. A label with a box stands for what the box holds.
json::value grade(std::string_view given, const json::value& label, Grading grading) {
  const std::string text = to_python_string(label);
  std::optional<std::string_view> truth = text;
  if (text.find("\\boxed") != std::string::npos) truth = boxed_content(text);
  return truth && is_correct(given, *truth, grading) ? 1 : 0;
}

}  // namespace

Expected<json::value> score_math(std::string_view response, const json::value& label,
                                 Grading grading) {
  if (is_empty(label)) return 0;
  const std::optional<std::string_view> given = extract_answer(response);
  if (!given) return 0;
  return grade(*given, label, grading);
}

Expected<json::value> score_deepscaler(std::string_view response, const json::value& label,
                                       Grading grading) {
  constexpr std::string_view kThink = "</think>";
  constexpr std::string_view kResponse = "###Response";
  std::string_view solution;
  if (const std::size_t think = response.rfind(kThink); think != std::string_view::npos) {
    solution = response.substr(think + kThink.size());
  } else if (const std::size_t begin = response.find(kResponse); begin != std::string_view::npos) {
    solution = response.substr(begin + kResponse.size());
    solution = solution.substr(0, solution.find(kResponse));
  } else {
    return 0;
  }
  const std::optional<std::string_view> given = extract_answer(solution);
  if (!given) return 0;
  if (label == json::value("")) return 0;
  if (!label.is_string() && !label.is_number()) {
    return failure("deepscaler: the label should be a string or a number, it is " +
                   json::serialize(label));
  }
  return grade(*given, label, grading);
}

}  // namespace slime::reward
