#include "text/grammar/schema_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/field_reader.h"
#include "text/tokenizer/regex.h"
#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

constexpr int64_t kBeyondAnyText = 1000000;  // no context is as long
constexpr int64_t kLargestMultiple = 1024;   // of the engine
constexpr int64_t kWidestRange = 10000;      // of multiples
constexpr double kInt64Bound = 9223372036854775808.0;

double number_of(const SchemaSource& source, std::string_view keyword, const std::string& where) {
  const json::value& value = *source.find(keyword);
  if (!value.is_number() || !std::isfinite(value.to_number<double>()))
    refuse_schema(where, source.place_of(keyword),
                  fmt::format("{} must be a number, not {}", keyword, shown(value)));
  return value.to_number<double>();
}

void tighten(std::optional<NumberBound>& bound, NumberBound other, bool is_low) {
  const double distance = bound ? other.value - bound->value : 0;
  const bool is_tighter =
      !bound || (is_low ? distance > 0 : distance < 0) || (distance == 0 && other.is_exclusive);
  if (is_tighter) bound = std::move(other);
}

void read_bound(const SchemaSource& source, bool is_low, NumberRules& rules,
                const std::string& where) {
  const std::string_view inclusive = is_low ? "minimum" : "maximum";
  const std::string_view exclusive = is_low ? "exclusiveMinimum" : "exclusiveMaximum";
  auto& bound = is_low ? rules.low : rules.high;
  const json::value* flag = source.find(exclusive);
  const bool is_flag = flag != nullptr && flag->is_bool();  // as draft 4 has it
  if (source.find(inclusive) != nullptr) {
    tighten(bound,
            {.value = number_of(source, inclusive, where),
             .is_exclusive = is_flag && flag->get_bool(),
             .written = *source.find(inclusive)},
            is_low);
  }
  if (flag != nullptr && !is_flag) {
    tighten(bound,
            {.value = number_of(source, exclusive, where), .is_exclusive = true, .written = *flag},
            is_low);
  }
}

void read_multiple(const SchemaSource& source, NumberRules& rules, const std::string& where) {
  if (source.find("multipleOf") == nullptr) return;
  const double value = number_of(source, "multipleOf", where);
  const std::string place = source.place_of("multipleOf");
  if (value <= 0) refuse_schema(where, place, "multipleOf must be greater than 0");
  if (value != std::floor(value) || value > static_cast<double>(kLargestMultiple)) {
    refuse_schema(where, place,
                  fmt::format("multipleOf is not supported but for whole numbers up to {}",
                              kLargestMultiple));
  }
  const auto whole = static_cast<int64_t>(value);
  if (rules.multiple_of && *rules.multiple_of != whole)
    refuse_schema(where, place, "multipleOf with two values is not supported");
  rules.multiple_of = whole;
  if (whole == 1) return;
  if (rules.low.has_value() != rules.high.has_value() ||
      (rules.low && rules.high->value - rules.low->value > static_cast<double>(kWidestRange))) {
    refuse_schema(
        where, place,
        fmt::format("multipleOf beside a range is not supported but for ranges of at most "
                    "{} numbers",
                    kWidestRange));
  }
}

/// The smallest whole number that keeps a low bound, or the largest of a high one.
std::optional<int64_t> whole_bound(const NumberBound& bound, bool is_low) {
  if (const auto* exact = bound.written.if_int64()) {
    if (!bound.is_exclusive) return *exact;
    if (*exact == (is_low ? INT64_MAX : INT64_MIN)) return std::nullopt;
    return is_low ? *exact + 1 : *exact - 1;
  }
  double edge = is_low ? std::ceil(bound.value) : std::floor(bound.value);
  if (bound.is_exclusive && edge == bound.value) edge += is_low ? 1 : -1;
  if (edge >= kInt64Bound || edge < -kInt64Bound) return std::nullopt;
  return static_cast<int64_t>(edge);
}

bool keeps(const NumberRules& rules, double number) {
  if (rules.low &&
      (number < rules.low->value || (rules.low->is_exclusive && number == rules.low->value)))
    return false;
  if (rules.high &&
      (number > rules.high->value || (rules.high->is_exclusive && number == rules.high->value)))
    return false;
  return !rules.multiple_of || std::fmod(number, static_cast<double>(*rules.multiple_of)) == 0;
}

bool keeps(const StringRules& rules, std::string_view text, const std::string& where) {
  int64_t length = 0;
  for (std::size_t at = 0; at < text.size(); at += decode_char(text.data() + at).length) ++length;
  if (length < rules.min_length || (rules.max_length && length > *rules.max_length)) return false;
  if (!rules.pattern) return true;
  const auto pattern = Regex::compile(*rules.pattern);
  if (!pattern) refuse_schema(where, rules.place, "pattern: " + pattern.error().message);
  std::vector<Range> matches;
  pattern->find_all(text, matches);
  return !matches.empty();
}

bool same_value(const json::value& one, const json::value& other) {
  if (one.is_number() && other.is_number())
    return one == other || one.to_number<double>() == other.to_number<double>();
  return one == other;
}

/// An enum's list, or the one value of a const.
std::vector<json::value> listed_values(const SchemaSource& source, std::string_view keyword,
                                       const std::string& where) {
  const json::value& given = *source.find(keyword);
  if (keyword == "const") return {given};
  const auto* list = given.if_array();
  if (list == nullptr || list->empty())
    refuse_schema(where, source.place_of(keyword), "enum must be a list of values, not empty");
  return {list->begin(), list->end()};
}

}  // namespace

NumberRules number_rules(const std::vector<SchemaSource>& sources, const std::string& where) {
  NumberRules rules;
  for (const SchemaSource& source : sources) {
    read_bound(source, true, rules, where);
    read_bound(source, false, rules, where);
  }
  for (const SchemaSource& source : sources) read_multiple(source, rules, where);
  return rules;
}

StringRules string_rules(const std::vector<SchemaSource>& sources, const std::string& where) {
  StringRules rules;
  GrammarLimits limits;
  rules.min_length = count_rule(sources, "minLength", true, where, limits).value_or(0);
  rules.max_length = count_rule(sources, "maxLength", false, where, limits);
  for (const SchemaSource& source : sources) {
    for (const char* keyword : {"pattern", "format"}) {
      const json::value* given = source.find(keyword);
      if (given == nullptr) continue;
      const std::string place = source.place_of(keyword);
      if (!given->is_string())
        refuse_schema(where, place,
                      fmt::format("{} must be a text, not {}", keyword, shown(*given)));
      auto& rule = keyword == std::string_view("pattern") ? rules.pattern : rules.format;
      const std::string text(given->get_string());
      if (rule && *rule != text && keyword == std::string_view("pattern"))
        refuse_schema(where, place, "two patterns of one text are not supported");
      rule = text;
      rules.place = place;
    }
  }
  return rules;
}

std::optional<json::object> number_schema(const NumberRules& rules, bool is_whole) {
  json::object schema;
  if (!is_whole) {
    schema["type"] = "number";
    if (rules.low)
      schema[rules.low->is_exclusive ? "exclusiveMinimum" : "minimum"] = rules.low->value;
    if (rules.high)
      schema[rules.high->is_exclusive ? "exclusiveMaximum" : "maximum"] = rules.high->value;
    if (rules.low && rules.high) {
      const bool is_open = rules.low->is_exclusive || rules.high->is_exclusive;
      if (rules.low->value > rules.high->value ||
          (is_open && rules.low->value == rules.high->value))
        return std::nullopt;
    }
    return schema;
  }
  schema["type"] = "integer";
  std::optional<int64_t> low, high;
  if (rules.low) {
    low = whole_bound(*rules.low, true);
    if (!low && rules.low->value > 0) return std::nullopt;
  }
  if (rules.high) {
    high = whole_bound(*rules.high, false);
    if (!high && rules.high->value < 0) return std::nullopt;
  }
  if (low && high && *low > *high) return std::nullopt;
  if (low) schema["minimum"] = *low;
  if (high) schema["maximum"] = *high;
  if (rules.multiple_of && *rules.multiple_of > 1) {
    if (low && high) {
      const int64_t step = *rules.multiple_of;
      const int64_t last = *high - ((*high % step) + step) % step;
      if (last < *low) return std::nullopt;
    }
    schema["multipleOf"] = *rules.multiple_of;
  }
  return schema;
}

std::optional<int64_t> count_rule(const std::vector<SchemaSource>& sources,
                                  std::string_view keyword, bool is_minimum,
                                  const std::string& where, const GrammarLimits& limits) {
  std::optional<int64_t> rule;
  for (const SchemaSource& source : sources) {
    const json::value* given = source.find(keyword);
    if (given == nullptr) continue;
    const double count = given->is_number() ? given->to_number<double>() : -1;
    if (count < 0 || count != std::floor(count)) {
      refuse_schema(
          where, source.place_of(keyword),
          fmt::format("{} must be a whole number, 0 or more, not {}", keyword, shown(*given)));
    }
    if (is_minimum && count > static_cast<double>(limits.repetition)) {
      refuse_schema(where, source.place_of(keyword),
                    fmt::format("{} is at most {}", keyword, limits.repetition));
    }
    if (!is_minimum && count >= static_cast<double>(kBeyondAnyText)) continue;
    const auto whole = static_cast<int64_t>(count);
    rule = !rule ? whole : is_minimum ? std::max(*rule, whole) : std::min(*rule, whole);
  }
  return rule;
}

std::optional<std::vector<json::value>> enum_values(const std::vector<SchemaSource>& sources,
                                                    uint8_t types, const std::string& where) {
  std::optional<std::vector<json::value>> values;
  for (const SchemaSource& source : sources) {
    for (const char* keyword : {"enum", "const"}) {
      if (source.find(keyword) == nullptr) continue;
      const std::vector<json::value> listed = listed_values(source, keyword, where);
      std::vector<json::value> both;
      for (const json::value& value : values ? *values : listed) {
        const auto is_same = [&](const json::value& other) { return same_value(value, other); };
        if (std::any_of(listed.begin(), listed.end(), is_same)) both.push_back(value);
      }
      values = both;
    }
  }
  if (!values) return std::nullopt;
  const NumberRules numbers = number_rules(sources, where);
  const StringRules strings = string_rules(sources, where);
  std::vector<json::value> kept;
  for (const json::value& value : *values) {
    if (big_integer_digits(value) != nullptr)
      refuse_schema(where, sources.front().place,
                    "whole numbers of more than 64 bits are not supported");
    const uint8_t type = type_of_value(value);
    if ((type & types) == 0) continue;
    if (value.is_number() && !keeps(numbers, value.to_number<double>())) continue;
    if (value.is_string() && !keeps(strings, std::string(value.get_string()), where)) continue;
    if ((type & (kArrayType | kObjectType)) != 0) {
      for (const SchemaSource& source : sources) {
        if ((implied_types(source) & type) == 0) continue;
        refuse_schema(where, source.place,
                      "an enum or const of lists or objects, beside rules of their members, is not "
                      "supported");
      }
    }
    kept.push_back(value);
  }
  return kept;
}

}  // namespace slime::text
