#include "acceptance/figure.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace slime::acceptance {
namespace {

std::string_view word_of(Figure::Kind kind) {
  switch (kind) {
    case Figure::Kind::kCompared:
      return "compared";
    case Figure::Kind::kTold:
      return "told";
    case Figure::Kind::kProblem:
      return "problem";
  }
  return "";
}

Figure::Kind kind_of(std::string_view word) {
  for (const auto kind : {Figure::Kind::kCompared, Figure::Kind::kTold, Figure::Kind::kProblem})
    if (word == word_of(kind)) return kind;
  throw ConfigError("a figure is compared, told or a problem");
}

std::string text_in(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_string())
    throw ConfigError("a figure has no text \"" + std::string(key) + "\"");
  return std::string(value->as_string());
}

double number_in(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_number())
    throw ConfigError("a figure has no number \"" + std::string(key) + "\"");
  return value->to_number<double>();
}

}  // namespace

bool differs(const Figure& figure) {
  if (figure.kind == Figure::Kind::kProblem) return true;
  return figure.kind == Figure::Kind::kCompared && !(figure.value <= figure.most);
}

bool has_difference(const std::vector<Figure>& figures) {
  return std::ranges::any_of(figures, differs);
}

/// A value that is no number is told as a problem: JSON has none.
json::object to_json(const Figure& figure) {
  json::object object{{"section", figure.section}, {"what", figure.what}};
  if (figure.kind == Figure::Kind::kCompared && figure.value != figure.value) {
    object["kind"] = word_of(Figure::Kind::kProblem);
    object["text"] = "the difference is no number";
    return object;
  }
  object["kind"] = word_of(figure.kind);
  if (figure.kind == Figure::Kind::kCompared) {
    object["value"] = figure.value;
    object["most"] = figure.most;
  } else {
    object["text"] = figure.text;
  }
  return object;
}

Figure figure_of(const json::object& object) {
  Figure figure;
  figure.section = text_in(object, "section");
  figure.what = text_in(object, "what");
  figure.kind = kind_of(text_in(object, "kind"));
  if (figure.kind == Figure::Kind::kCompared) {
    figure.value = number_in(object, "value");
    figure.most = number_in(object, "most");
  } else {
    figure.text = text_in(object, "text");
  }
  return figure;
}

}  // namespace slime::acceptance
