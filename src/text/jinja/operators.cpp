#include "text/jinja/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/format.h"
#include "text/unicode/python_text.h"

namespace slime::text::jinja {

using namespace python;  // its str methods are the filters and methods of templates

namespace {

std::string_view symbol(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kFloorDivide:
      return "//";
    case BinaryOperator::kModulo:
      return "%";
    case BinaryOperator::kPower:
      return "** or pow()";
  }
  return "";
}

[[noreturn]] void fail_operands(BinaryOperator op, const Value& left, const Value& right) {
  fail_type(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol(op),
                        left.type_name(), right.type_name()));
}

[[noreturn]] void fail_overflow() { fail_limit("an integer of more than 128 bits"); }

double floor_modulo(double left, double right) {
  double rest = std::fmod(left, right);
  if (rest != 0 && (rest < 0) != (right < 0)) rest += right;
  return rest == 0 ? std::copysign(0.0, right) : rest;
}

Value power(Integer base, Integer exponent) {
  if (exponent < 0) {
    if (base == 0) fail_type("0.0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  Integer result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? Integer{1} : base;
  if (base == -1) return Integer{exponent % 2 == 0 ? 1 : -1};
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) fail_overflow();
  }
  return result;
}

Value integer_arithmetic(BinaryOperator op, Integer left, Integer right) {
  Integer result = 0;
  constexpr Integer kSmallest = Integer{1} << 126;
  switch (op) {
    case BinaryOperator::kAdd:
      if (__builtin_add_overflow(left, right, &result)) fail_overflow();
      return result;
    case BinaryOperator::kSubtract:
      if (__builtin_sub_overflow(left, right, &result)) fail_overflow();
      return result;
    case BinaryOperator::kMultiply:
      if (__builtin_mul_overflow(left, right, &result)) fail_overflow();
      return result;
    case BinaryOperator::kPower:
      return power(left, right);
    default:
      break;
  }
  if (right == 0) {
    fail_type(op == BinaryOperator::kDivide ? "division by zero"
                                            : "integer division or modulo by zero");
  }
  if (op == BinaryOperator::kDivide) return static_cast<double>(left) / static_cast<double>(right);
  if (right == -1 && left < -kSmallest) fail_overflow();
  const Integer quotient = left / right;
  const Integer rest = left % right;
  const bool rounds_down = rest != 0 && (rest < 0) != (right < 0);
  if (op == BinaryOperator::kFloorDivide) return rounds_down ? quotient - 1 : quotient;
  return rounds_down ? rest + right : rest;
}

Value float_arithmetic(BinaryOperator op, double left, double right) {
  switch (op) {
    case BinaryOperator::kAdd:
      return left + right;
    case BinaryOperator::kSubtract:
      return left - right;
    case BinaryOperator::kMultiply:
      return left * right;
    case BinaryOperator::kPower:
      if (left == 0 && right < 0) fail_type("0.0 cannot be raised to a negative power");
      if (left < 0 && right != std::floor(right)) fail_type("complex numbers are not supported");
      return std::pow(left, right);
    default:
      break;
  }
  if (right == 0) {
    fail_type(op == BinaryOperator::kDivide   ? "float division by zero"
              : op == BinaryOperator::kModulo ? "float modulo"
                                              : "float floor division by zero");
  }
  if (op == BinaryOperator::kDivide) return left / right;
  if (op == BinaryOperator::kModulo) return floor_modulo(left, right);
  return std::floor((left - floor_modulo(left, right)) / right + 0.5);
}

Value added_sequences(const Value& left, const Value& right, Budget& budget) {
  const Sequence* a = left.if_sequence();
  const Sequence* b = right.if_sequence();
  const bool list = a->kind == SequenceKind::kList || a->kind == SequenceKind::kTuple;
  if (!list) fail_operands(BinaryOperator::kAdd, left, right);
  if (b == nullptr || a->kind != b->kind) {
    fail_type(fmt::format("can only concatenate {} (not \"{}\") to {}", left.type_name(),
                          right.type_name(), left.type_name()));
  }
  budget.take_bytes((a->items.size() + b->items.size()) * sizeof(Value));
  std::vector<Value> items;
  items.reserve(a->items.size() + b->items.size());
  items.insert(items.end(), a->items.begin(), a->items.end());
  items.insert(items.end(), b->items.begin(), b->items.end());
  return make_sequence(a->kind, std::move(items));
}

/// text * 3, [0] * 3. No value where neither operand repeats.
std::optional<Value> repeated(const Value& value, const Value& count, Budget& budget) {
  const auto times = count.if_integer();
  if (!times) return std::nullopt;
  const auto n = static_cast<std::size_t>(std::max<int64_t>(0, to_index(*times)));
  if (const std::string* text = value.if_string()) {
    if (n != 0 && text->size() > budget.limits().bytes / n) budget.take_bytes(SIZE_MAX);
    budget.take_bytes(text->size() * n);
    std::string out;
    out.reserve(text->size() * n);
    for (std::size_t i = 0; i < n && !text->empty(); ++i) out += *text;
    return out;
  }
  const Sequence* sequence = value.if_sequence();
  if (sequence == nullptr ||
      (sequence->kind != SequenceKind::kList && sequence->kind != SequenceKind::kTuple)) {
    return std::nullopt;
  }
  const std::size_t size = sequence->items.size() * sizeof(Value);
  if (n != 0 && size > budget.limits().bytes / n) budget.take_bytes(SIZE_MAX);
  budget.take_bytes(size * n);
  std::vector<Value> items;
  for (std::size_t i = 0; i < n && size != 0; ++i) {
    items.insert(items.end(), sequence->items.begin(), sequence->items.end());
  }
  return make_sequence(sequence->kind, std::move(items));
}

/// Code points first, first + stride, ... before last (after it where the stride is negative).
Value text_slice(std::string_view text, int64_t first, int64_t last, int64_t stride,
                 Budget& budget) {
  if (stride < 0 ? first <= last : first >= last) return "";
  const int64_t low = stride < 0 ? last + 1 : first, high = stride < 0 ? first + 1 : last;
  budget.take_pass(text.size());
  const std::size_t begin = byte_offset(text, static_cast<std::size_t>(low));
  text.remove_prefix(begin);
  text = text.substr(0, byte_offset(text, static_cast<std::size_t>(high - low)));
  budget.take_bytes(text.size());
  if (stride == 1) return text;
  budget.take_bytes(static_cast<std::size_t>(high - low) * sizeof(std::string_view));
  const std::vector<std::string_view> points = split_points(text);
  std::string out;
  for (int64_t i = first; stride < 0 ? i > last : i < last; i += stride)
    out += points[static_cast<std::size_t>(i - low)];
  return out;
}

int64_t clamped_bound(const Value& bound, int64_t if_absent, int64_t size, int64_t low,
                      int64_t high) {
  if (bound.is_none()) return if_absent;
  const auto integer = bound.if_integer();
  if (!integer) fail_type("slice indices must be integers or None or have an __index__ method");
  int64_t index = to_index(*integer);
  if (index < 0) index = std::max(index + size, low);
  return std::clamp(index, low, high);
}

}  // namespace

int64_t to_index(Integer value) {
  constexpr Integer kLimit = std::numeric_limits<int64_t>::max() / 4;
  return static_cast<int64_t>(std::clamp(value, -kLimit, kLimit));
}

Value apply(BinaryOperator op, const Value& left, const Value& right, Budget& budget) {
  if (left.is_undefined()) fail_undefined(left.undefined_reason());
  if (op == BinaryOperator::kModulo && left.if_string() != nullptr)
    return percent_format(*left.if_string(), right, budget);
  if (right.is_undefined()) fail_undefined(right.undefined_reason());

  const auto a = left.if_number();
  const auto b = right.if_number();
  if (a && b) {
    if (left.if_big_integer() != nullptr || right.if_big_integer() != nullptr) fail_overflow();
    if (left.if_float() == nullptr && right.if_float() == nullptr) {
      return integer_arithmetic(op, *left.if_integer(), *right.if_integer());
    }
    return float_arithmetic(op, *a, *b);
  }
  if (op == BinaryOperator::kAdd) {
    if (const std::string* text = left.if_string()) {
      const std::string* tail = right.if_string();
      if (tail == nullptr)
        fail_type(fmt::format("can only concatenate str (not \"{}\") to str", right.type_name()));
      budget.take_bytes(text->size() + tail->size());
      return *text + *tail;
    }
    if (left.if_sequence() != nullptr) return added_sequences(left, right, budget);
  }
  if (op == BinaryOperator::kMultiply) {
    if (auto product = repeated(left, right, budget)) return *std::move(product);
    if (auto product = repeated(right, left, budget)) return *std::move(product);
  }
  fail_operands(op, left, right);
}

Value negated(const Value& value) {
  if (value.is_undefined()) fail_undefined(value.undefined_reason());
  if (value.if_big_integer() != nullptr) fail_overflow();
  if (const double* number = value.if_float()) return -*number;
  if (const auto integer = value.if_integer())
    return integer_arithmetic(BinaryOperator::kSubtract, 0, *integer);
  fail_type(fmt::format("bad operand type for unary -: '{}'", value.type_name()));
}

Value posited(const Value& value) {
  if (value.is_undefined()) fail_undefined(value.undefined_reason());
  if (const double* number = value.if_float()) return *number;
  if (value.if_big_integer() != nullptr) return value;
  if (const auto integer = value.if_integer()) return *integer;
  fail_type(fmt::format("bad operand type for unary +: '{}'", value.type_name()));
}

namespace {

bool ordered(std::string_view op, const Value& left, const Value& right, Budget& budget) {
  budget.take_steps();
  const auto holds = [&](const auto& a, const auto& b) {
    if (op == "<") return a < b;
    if (op == "<=") return a <= b;
    if (op == ">") return a > b;
    return a >= b;
  };
  if (left.is_undefined()) fail_undefined(left.undefined_reason());
  if (right.is_undefined()) fail_undefined(right.undefined_reason());
  if (left.if_number() && right.if_number()) {
    const std::partial_ordering order = compare_numbers(left, right);
    if (op == "<") return order < 0;
    if (op == "<=") return order <= 0;
    return op == ">" ? order > 0 : order >= 0;
  }
  // UTF-8 sorts as its code points do.
  if (left.if_string() != nullptr && right.if_string() != nullptr) {
    budget.take_pass(std::min(left.if_string()->size(), right.if_string()->size()));
    return holds(*left.if_string(), *right.if_string());
  }
  const Sequence* a = left.if_indexable();
  const Sequence* b = right.if_indexable();
  if (a != nullptr && b != nullptr && a->kind == b->kind && a->kind != SequenceKind::kRange) {
    const std::size_t shared = std::min(a->items.size(), b->items.size());
    for (std::size_t i = 0; i < shared; ++i) {
      if (!equal(a->items[i], b->items[i], budget))
        return ordered(op, a->items[i], b->items[i], budget);
    }
    return holds(a->items.size(), b->items.size());
  }
  fail_type(fmt::format("'{}' not supported between instances of '{}' and '{}'", op,
                        left.type_name(), right.type_name()));
}

}  // namespace

bool less(const Value& left, const Value& right, Budget& budget) {
  return ordered("<", left, right, budget);
}

bool compare(CompareOperator op, const Value& left, const Value& right, Budget& budget) {
  switch (op) {
    case CompareOperator::kEqual:
      return equal(left, right, budget);
    case CompareOperator::kNotEqual:
      return !equal(left, right, budget);
    case CompareOperator::kLess:
      return ordered("<", left, right, budget);
    case CompareOperator::kLessEqual:
      return ordered("<=", left, right, budget);
    case CompareOperator::kGreater:
      return ordered(">", left, right, budget);
    case CompareOperator::kGreaterEqual:
      return ordered(">=", left, right, budget);
    case CompareOperator::kIn:
      return contains(right, left, budget);
    case CompareOperator::kNotIn:
      return !contains(right, left, budget);
  }
  return false;
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (const std::string* text = container.if_string()) {
    const std::string* part = item.if_string();
    if (part != nullptr) {
      budget.take_pass(text->size() + part->size());
      return find_part(*text, *part) != std::string::npos;
    }
    fail_type(
        fmt::format("'in <string>' requires string as left operand, not {}", item.type_name()));
  }
  if (const Dict* dict = container.if_dict()) {
    if (!is_hashable(item, budget))
      fail_type(fmt::format("unhashable type: '{}'", item.type_name()));
    return dict->find(item, budget) != nullptr;
  }
  if (const Sequence* sequence = container.if_sequence()) {
    if (sequence->kind == SequenceKind::kGenerator && std::exchange(sequence->consumed, true))
      return false;
    return std::any_of(sequence->items.begin(), sequence->items.end(),
                       [&](const Value& element) { return equal(element, item, budget); });
  }
  if (container.is_undefined()) return false;
  fail_type(fmt::format("argument of type '{}' is not iterable", container.type_name()));
}

std::vector<Value> iterate(const Value& value, Budget& budget) {
  if (const Sequence* sequence = value.if_sequence()) {
    if (sequence->kind == SequenceKind::kGenerator && std::exchange(sequence->consumed, true))
      return {};
    budget.take_bytes(sequence->items.size() * sizeof(Value));
    return sequence->items;
  }
  std::vector<Value> items;
  if (const Dict* dict = value.if_dict()) {
    budget.take_bytes(dict->members.size() * sizeof(Value));
    for (const auto& member : dict->members) items.push_back(member.first);
  } else if (const std::string* text = value.if_string()) {
    budget.take_bytes(text->size() * (sizeof(Value) + sizeof(std::string)));
    for (const std::string_view point : split_points(*text)) items.emplace_back(point);
  } else if (!value.is_undefined()) {
    fail_type(fmt::format("'{}' object is not iterable", value.type_name()));
  }
  return items;
}

std::size_t length(const Value& value, Budget& budget) {
  if (const std::string* text = value.if_string()) {
    budget.take_pass(text->size());
    return count_points(*text);
  }
  if (const Dict* dict = value.if_dict()) return dict->members.size();
  if (value.is_undefined()) return 0;
  const Sequence* sequence = value.if_sequence();
  if (sequence == nullptr || sequence->kind == SequenceKind::kGenerator) {
    fail_type(fmt::format("object of type '{}' has no len()", value.type_name()));
  }
  return sequence->items.size();
}

Value slice(const Value& value, const Value& start, const Value& stop, const Value& step,
            Budget& budget) {
  if (value.is_undefined()) fail_undefined(value.undefined_reason());
  const std::string* text = value.if_string();
  const Sequence* sequence = value.if_indexable();
  if (text == nullptr && sequence == nullptr) {
    fail_type(fmt::format("'{}' object is not subscriptable", value.type_name()));
  }
  const auto stride_value = step.is_none() ? std::optional<Integer>(1) : step.if_integer();
  if (!stride_value)
    fail_type("slice indices must be integers or None or have an __index__ method");
  const int64_t stride = to_index(*stride_value);
  if (stride == 0) fail_type("slice step cannot be zero");

  const auto size =
      static_cast<int64_t>(text == nullptr ? sequence->items.size() : length(value, budget));
  // With a negative stride the positions run from size - 1 down to -1, exclusive.
  const int64_t low = stride < 0 ? -1 : 0;
  const int64_t high = stride < 0 ? size - 1 : size;
  const int64_t first = clamped_bound(start, stride < 0 ? high : low, size, low, high);
  const int64_t last = clamped_bound(stop, stride < 0 ? low : high, size, low, high);

  if (text != nullptr) return text_slice(*text, first, last, stride, budget);
  const int64_t distance = stride < 0 ? first - last : last - first;
  const int64_t width = stride < 0 ? -stride : stride;
  budget.take_bytes(static_cast<std::size_t>(distance <= 0 ? 0 : (distance - 1) / width + 1) *
                    sizeof(Value));
  std::vector<Value> items;
  for (int64_t i = first; stride < 0 ? i > last : i < last; i += stride)
    items.push_back(sequence->items[static_cast<std::size_t>(i)]);
  return make_sequence(
      sequence->kind == SequenceKind::kRange ? SequenceKind::kList : sequence->kind,
      std::move(items));
}

}  // namespace slime::text::jinja
