#include "acceptance/figure.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/field_reader.h"

namespace slime::acceptance {
namespace {

/// In the order of Figure::Kind.
constexpr auto kKinds = std::to_array<std::string_view>({"compared", "told", "problem"});

std::string_view word_of(Figure::Kind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

Figure::Kind kind_in(const FieldReader& fields) {
  const std::string word = *fields.one_of("kind", kKinds);
  return static_cast<Figure::Kind>(std::ranges::find(kKinds, word) - kKinds.begin());
}

/// Infinity is one.
double number_in(const FieldReader& fields, std::string_view name) {
  const json::value* value = fields.find(name);
  if (value != nullptr && value->is_number()) return value->to_number<double>();
  return *fields.number(name);
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
  const FieldReader fields = FieldReader(object, "a figure: ").required();
  figure.section = *fields.text("section");
  figure.what = *fields.text("what");
  figure.kind = kind_in(fields);
  if (figure.kind == Figure::Kind::kCompared) {
    figure.value = number_in(fields, "value");
    figure.most = number_in(fields, "most");
  } else {
    figure.text = *fields.text("text");
  }
  return figure;
}

}  // namespace slime::acceptance
