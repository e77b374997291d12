// The tests of `x is name`.

#include <fmt/format.h>

#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/unicode/python_text.h"

namespace slime::text::jinja {

using namespace python;  // its str methods are the filters and methods of templates

namespace {

/// A test without arguments, from a predicate.
template <bool (*predicate)(const Value&)>
bool plain(Interpreter&, const Value& input, Arguments arguments) {
  BoundArguments("test", std::move(arguments), {});
  return predicate(input);
}

template <CompareOperator op>
bool compares(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("test", std::move(arguments), {"other"});
  return compare(op, input, bound.require(0), run.budget());
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_string(const Value& value) { return value.if_string() != nullptr; }
bool is_mapping(const Value& value) { return value.if_dict() != nullptr; }
bool is_number(const Value& value) { return value.if_number().has_value(); }
bool is_boolean(const Value& value) { return value.if_bool() != nullptr; }
bool is_integer(const Value& value) {
  return (value.if_integer() && value.if_bool() == nullptr) || value.if_big_integer() != nullptr;
}
bool is_float(const Value& value) { return value.if_float() != nullptr; }
bool is_true(const Value& value) { return value.if_bool() != nullptr && *value.if_bool(); }
bool is_false(const Value& value) { return value.if_bool() != nullptr && !*value.if_bool(); }
bool is_never(const Value&) { return false; }

/// What has a length and indices, Undefined included: Jinja's Undefined has both.
bool is_sequence(const Value& value) {
  return value.is_undefined() || value.if_string() != nullptr || value.if_dict() != nullptr ||
         value.if_indexable() != nullptr;
}
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.if_string() != nullptr || value.if_dict() != nullptr ||
         value.if_sequence() != nullptr;
}
bool is_callable(const Value& value) {
  return value.is_undefined() || value.if_function() != nullptr;
}

template <bool (*is_case)(char32_t), bool (*is_other)(char32_t)>
bool has_case(Interpreter& run, const Value& value, Arguments arguments) {
  BoundArguments("test", std::move(arguments), {});
  const std::string text = paid_text(value, run.budget());
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t point = next_point(text, at);
    if (is_other(point)) return false;
    any |= is_case(point);
  }
  return any;
}

bool divides(Interpreter& run, const Value& value, const Value& divisor, int rest) {
  return equal(apply(BinaryOperator::kModulo, value, divisor, run.budget()), Value(rest),
               run.budget());
}
bool is_even(Interpreter& run, const Value& input, Arguments arguments) {
  BoundArguments("even", std::move(arguments), {});
  return divides(run, input, 2, 0);
}
bool is_odd(Interpreter& run, const Value& input, Arguments arguments) {
  BoundArguments("odd", std::move(arguments), {});
  return divides(run, input, 2, 1);
}
bool is_divisible_by(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("divisibleby", std::move(arguments), {"num"});
  return divides(run, input, bound.require(0), 0);
}

bool is_in(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("in", std::move(arguments), {"seq"});
  return contains(bound.require(0), input, run.budget());
}

/// Python's `is`, as far as values here have an identity.
bool is_same(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("sameas", std::move(arguments), {"other"});
  const Value& other = bound.require(0);
  if (const Sequence* sequence = input.if_sequence()) return sequence == other.if_sequence();
  if (const Dict* dict = input.if_dict()) return dict == other.if_dict();
  return input.type_name() == other.type_name() && equal(input, other, run.budget());
}

bool is_filter(Interpreter& run, const Value& input, Arguments arguments) {
  BoundArguments("filter", std::move(arguments), {});
  return find_filter(paid_text(input, run.budget())) != nullptr;
}
bool is_test(Interpreter& run, const Value& input, Arguments arguments) {
  BoundArguments("test", std::move(arguments), {});
  return find_test(paid_text(input, run.budget())) != nullptr;
}

bool is_starting_with(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("startingwith", std::move(arguments), {"prefix"});
  return paid_text(input, run.budget()).starts_with(paid_text(bound.require(0), run.budget()));
}
bool is_ending_with(Interpreter& run, const Value& input, Arguments arguments) {
  const BoundArguments bound("endingwith", std::move(arguments), {"suffix"});
  return paid_text(input, run.budget()).ends_with(paid_text(bound.require(0), run.budget()));
}

}  // namespace

TestFn find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, TestFn> kTests = {
      {"boolean", plain<is_boolean>},
      {"callable", plain<is_callable>},
      {"defined", plain<is_defined>},
      {"divisibleby", is_divisible_by},
      {"escaped", plain<is_never>},
      {"even", is_even},
      {"false", plain<is_false>},
      {"filter", is_filter},
      {"float", plain<is_float>},
      {"in", is_in},
      {"integer", plain<is_integer>},
      {"iterable", plain<is_iterable>},
      {"lower", has_case<is_lower, is_upper>},
      {"mapping", plain<is_mapping>},
      {"none", plain<is_none>},
      {"number", plain<is_number>},
      {"odd", is_odd},
      {"sameas", is_same},
      {"sequence", plain<is_sequence>},
      {"string", plain<is_string>},
      {"test", is_test},
      {"true", plain<is_true>},
      {"undefined", plain<is_undefined>},
      {"upper", has_case<is_upper, is_lower>},
      {"==", compares<CompareOperator::kEqual>},
      {"eq", compares<CompareOperator::kEqual>},
      {"equalto", compares<CompareOperator::kEqual>},
      {"!=", compares<CompareOperator::kNotEqual>},
      {"ne", compares<CompareOperator::kNotEqual>},
      {"<", compares<CompareOperator::kLess>},
      {"lt", compares<CompareOperator::kLess>},
      {"lessthan", compares<CompareOperator::kLess>},
      {"<=", compares<CompareOperator::kLessEqual>},
      {"le", compares<CompareOperator::kLessEqual>},
      {">", compares<CompareOperator::kGreater>},
      {"gt", compares<CompareOperator::kGreater>},
      {"greaterthan", compares<CompareOperator::kGreater>},
      {">=", compares<CompareOperator::kGreaterEqual>},
      {"ge", compares<CompareOperator::kGreaterEqual>},
      // Not in Jinja2, but other engines have them and templates use them.
      {"startingwith", is_starting_with},
      {"endingwith", is_ending_with},
  };
  const auto found = kTests.find(name);
  return found == kTests.end() ? nullptr : found->second;
}

}  // namespace slime::text::jinja
