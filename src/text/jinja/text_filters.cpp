// Filters on texts and numbers.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/number.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/unicode/python_text.h"

namespace slime::text::jinja {

using namespace python;  // its str methods are the filters and methods of templates

namespace {

/// str(input), paid for.
std::string text_of(Interpreter& run, const Value& input) {
  run.budget().take_bytes(static_cast<std::size_t>(input.extent().size));
  return to_str(input);
}

void expect_none(std::string_view name, Arguments arguments) {
  BoundArguments(name, std::move(arguments), {});
}

Value upper(Interpreter& run, const Value& input, Arguments arguments) {
  expect_none("upper", std::move(arguments));
  return to_upper(text_of(run, input));
}

Value lower(Interpreter& run, const Value& input, Arguments arguments) {
  expect_none("lower", std::move(arguments));
  return to_lower(text_of(run, input));
}

Value capitalize(Interpreter& run, const Value& input, Arguments arguments) {
  expect_none("capitalize", std::move(arguments));
  return capitalized(text_of(run, input));
}

/// Not str.title: words begin after white space, '-' and opening brackets alone.
Value title(Interpreter& run, const Value& input, Arguments arguments) {
  expect_none("title", std::move(arguments));
  const std::string text = text_of(run, input);
  std::string out;
  bool starts_word = true;
  for (const std::string_view point : split_points(text)) {
    std::size_t at = 0;
    const char32_t value = next_point(point, at);
    const bool separates = is_space(value) || point == "-" || point == "(" || point == "{" ||
                           point == "[" || point == "<";
    out += separates ? std::string(point) : starts_word ? to_upper(point) : to_lower(point);
    starts_word = separates;
  }
  return out;
}

Value trim(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("trim", std::move(arguments), {"chars"});
  return stripped(text_of(run, input), bound.text(0));
}

Value replace(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("replace", std::move(arguments), {"old", "new", "count"});
  const std::string text = text_of(run, input);
  const std::string from = paid_text(bound.require(0), run.budget());
  const std::string to = paid_text(bound.require(1), run.budget());
  run.budget().take_pass(text.size() + from.size());
  const std::size_t found = count_occurrences(text, from);
  if (!to.empty() && found > (std::size_t{1} << 40) / to.size()) run.budget().take_bytes(SIZE_MAX);
  run.budget().take_bytes(found * to.size());
  return replaced(text, from, to, bound.index(2, -1));
}

Value indent(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("indent", std::move(arguments), {"width", "first", "blank"});
  const std::string text = text_of(run, input) + "\n";  // so that a final newline counts as a line
  std::string margin;
  if (const Value* width = bound.find(0); width != nullptr && width->if_string() != nullptr) {
    margin = *width->if_string();
  } else {
    const auto count = static_cast<std::size_t>(std::max<int64_t>(0, bound.index(0, 4)));
    run.budget().take_bytes(count);
    margin.assign(count, ' ');
  }
  const bool blank = bound.flag(2, false);
  std::string out = bound.flag(1, false) ? margin : "";
  bool is_first = true;
  for (const std::string_view line : split_lines(text)) {
    if (!is_first) out += '\n';
    if (!is_first && (blank || !line.empty())) {
      run.budget().take_bytes(margin.size());
      out += margin;
    }
    out += line;
    is_first = false;
  }
  return out;
}

Value center(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("center", std::move(arguments), {"width"});
  return centered(run.budget(), text_of(run, input), bound.index(0, 80), " ");
}

Value truncate(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("truncate", std::move(arguments),
                             {"length", "killwords", "end", "leeway"});
  const std::string text = text_of(run, input);
  const std::string end = bound.text(2).value_or("...");
  const int64_t limit = bound.index(0, 255);
  const int64_t leeway = bound.index(3, 5);
  const auto end_length = static_cast<int64_t>(count_points(end));
  if (limit < end_length)
    fail_type(fmt::format("expected length >= {}, got {}", end_length, limit));
  if (leeway < 0) fail_type(fmt::format("expected leeway >= 0, got {}", leeway));
  if (static_cast<int64_t>(count_points(text)) <= limit + leeway) return text;
  std::string cut = text.substr(0, byte_offset(text, static_cast<std::size_t>(limit - end_length)));
  if (bound.flag(1, false)) return cut + end;
  if (const std::size_t space = cut.rfind(' '); space != std::string::npos) cut.resize(space);
  return cut + end;
}

Value wordcount(Interpreter& run, const Value& input, Arguments arguments) {
  expect_none("wordcount", std::move(arguments));
  const std::string text = text_of(run, input);
  std::size_t count = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t point = next_point(text, at);
    const bool is_word = is_alphabetic(point) || is_numeric(point) || point == '_';
    count += is_word && !inside ? 1 : 0;
    inside = is_word;
  }
  return count;
}

Value format_filter(Interpreter& run, const Value& input, Arguments arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail_type("can't handle positional and keyword arguments at the same time");
  }
  Value values = make_tuple(std::move(arguments.positional));
  if (!arguments.named.empty()) {
    std::vector<std::pair<Value, Value>> members;
    for (auto& [name, value] : arguments.named) members.emplace_back(name, std::move(value));
    values = make_dict(std::move(members));
  }
  return percent_format(text_of(run, input), values, run.budget());
}

Value string_filter(Interpreter& run, const Value& input, Arguments arguments) {
  expect_none("string", std::move(arguments));
  return input.if_string() != nullptr ? input : Value(text_of(run, input));
}

Value escape(Interpreter& run, const Value& input, Arguments arguments) {
  expect_none("escape", std::move(arguments));
  std::string out;
  for (const char c : text_of(run, input)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  run.budget().take_bytes(out.size());
  return out;
}

Value tojson(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("tojson", std::move(arguments),
                             {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  if (const Value* indent = bound.find(1); indent != nullptr && !indent->is_none()) {
    if (const std::string* text = indent->if_string()) {
      style.indent = *text;
    } else {
      const auto count = static_cast<std::size_t>(std::max<int64_t>(0, bound.index(1, 0)));
      run.budget().take_bytes(count);
      style.indent = std::string(count, ' ');
    }
    style.item_separator = ",";
  }
  if (const Value* separators = bound.find(2); separators != nullptr && !separators->is_none()) {
    const std::vector<Value> pair = iterate(*separators, run.budget());
    if (pair.size() != 2 || pair[0].if_string() == nullptr || pair[1].if_string() == nullptr) {
      fail_type("separators are a pair of strings");
    }
    run.budget().take_bytes(static_cast<std::size_t>(separators->extent().size));
    style.item_separator = *pair[0].if_string();
    style.key_separator = *pair[1].if_string();
  }
  run.budget().take_steps(static_cast<std::size_t>(input.extent().size) / 16);
  std::string out = to_json(input, style);
  run.budget().take_bytes(out.size());
  return out;
}

Value int_filter(Interpreter&, const Value& input, Arguments arguments) {
  const BoundArguments bound("int", std::move(arguments), {"default", "base"});
  if (input.is_undefined()) fail_undefined(input.undefined_reason());
  const Value if_not = bound.find(0) == nullptr ? Value(0) : *bound.find(0);
  if (const std::string* text = input.if_string()) {
    if (const auto value =
            parse_integer(*text, static_cast<int>(std::clamp<int64_t>(bound.index(1, 10), 0, 36))))
      return *value;
    const auto number = parse_float(*text);
    return number ? float_to_integer(*number).value_or(if_not) : if_not;
  }
  if (const auto integer = input.if_integer()) return *integer;
  if (input.if_big_integer() != nullptr) return input;
  const double* number = input.if_float();
  return number == nullptr ? if_not : float_to_integer(*number).value_or(if_not);
}

Value float_filter(Interpreter&, const Value& input, Arguments arguments) {
  const BoundArguments bound("float", std::move(arguments), {"default"});
  if (input.is_undefined()) fail_undefined(input.undefined_reason());
  std::optional<double> number = input.if_number();
  if (const std::string* text = input.if_string()) number = parse_float(*text);
  if (number) return *number;
  return bound.find(0) == nullptr ? Value(0.0) : *bound.find(0);
}

Value abs_filter(Interpreter&, const Value& input, Arguments arguments) {
  expect_none("abs", std::move(arguments));
  if (input.is_undefined()) fail_undefined(input.undefined_reason());
  if (const double* number = input.if_float()) return std::fabs(*number);
  if (const std::string* digits = input.if_big_integer()) {
    return digits->starts_with('-')
               ? Value(BigInteger{std::make_shared<const std::string>(digits->substr(1))})
               : input;
  }
  if (const auto integer = input.if_integer())
    return *integer < 0 ? negated(*integer) : Value(*integer);
  fail_type(fmt::format("bad operand type for abs(): '{}'", input.type_name()));
}

Value round_filter(Interpreter&, const Value& input, Arguments arguments) {
  const BoundArguments bound("round", std::move(arguments), {"precision", "method"});
  if (input.is_undefined()) fail_undefined(input.undefined_reason());
  const auto number = input.if_number();
  if (!number) fail_type(fmt::format("type {} doesn't define __round__ method", input.type_name()));
  const int precision = static_cast<int>(std::clamp<int64_t>(bound.index(0, 0), -400, 400));
  const std::string method = bound.text(1).value_or("common");
  if (method == "common") {
    if (input.if_big_integer() != nullptr) {
      if (precision >= 0) return input;
      fail_limit("an integer of more than 128 bits");
    }
    if (input.if_float() == nullptr && precision >= 0) return *input.if_integer();
    const double rounded = rounded_half_even(*number, precision);
    if (input.if_float() == nullptr) return float_to_integer(rounded).value_or(Value(rounded));
    return rounded;
  }
  const double scale = std::pow(10.0, precision);
  if (method == "ceil") return std::ceil(*number * scale) / scale;
  if (method == "floor") return std::floor(*number * scale) / scale;
  fail_type("method must be common, ceil or floor");
}

Value default_filter(Interpreter&, const Value& input, Arguments arguments) {
  const BoundArguments bound("default", std::move(arguments), {"default_value", "boolean"});
  const bool replaces = input.is_undefined() || (bound.flag(1, false) && !input.truthy());
  if (!replaces) return input;
  return bound.find(0) == nullptr ? Value("") : *bound.find(0);
}

}  // namespace

FilterFn find_text_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFn> kFilters = {
      {"abs", abs_filter},
      {"capitalize", capitalize},
      {"center", center},
      {"d", default_filter},
      {"default", default_filter},
      {"e", escape},
      {"escape", escape},
      {"float", float_filter},
      {"format", format_filter},
      {"indent", indent},
      {"int", int_filter},
      {"lower", lower},
      {"replace", replace},
      {"round", round_filter},
      {"safe", string_filter},
      {"string", string_filter},
      {"title", title},
      {"tojson", tojson},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", upper},
      {"wordcount", wordcount},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

FilterFn find_filter(std::string_view name) {
  const FilterFn filter = find_text_filter(name);
  return filter != nullptr ? filter : find_sequence_filter(name);
}

}  // namespace slime::text::jinja
