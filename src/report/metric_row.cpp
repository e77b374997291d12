#include "report/metric_row.h"

#include <utility>

#include "core/field_reader.h"

namespace slime::report {

std::optional<json::object> read_metric_row(std::string_view line) {
  std::optional<json::value> value = try_parse_json(line);
  if (!value || !value->is_object()) return std::nullopt;
  return std::move(value->get_object());
}

std::optional<int64_t> step_of_row(const json::object& row) {
  const json::value* given = row.if_contains("step");
  const auto step = given == nullptr ? std::nullopt : whole_number(*given);
  return step && *step >= 0 && *step <= kLargestStep ? step : std::nullopt;
}

}  // namespace slime::report
