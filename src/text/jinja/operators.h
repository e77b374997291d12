#pragma once

/// Python's operators. Failures are kType, or kUndefined when an operand is Undefined; the wording
/// is Python's.

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace slime::text::jinja {

enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOperator {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

Value apply(BinaryOperator op, const Value& left, const Value& right, Budget& budget);
bool compare(CompareOperator op, const Value& left, const Value& right, Budget& budget);
Value negated(const Value& value);
Value posited(const Value& value);

/// Python's <, for sorting too.
bool less(const Value& left, const Value& right, Budget& budget);
/// left in right.
bool contains(const Value& container, const Value& item, Budget& budget);

/// What `for` sees: items of a sequence (a generator is used up), keys of a dictionary, characters
/// of a string, nothing of Undefined. Everything else is not iterable.
std::vector<Value> iterate(const Value& value, Budget& budget);
/// len(value); Undefined has none.
std::size_t length(const Value& value, Budget& budget);

/// value[start:stop:step]; None stands for an absent bound.
Value slice(const Value& value, const Value& start, const Value& stop, const Value& step,
            Budget& budget);

/// A Python index or count that must fit a machine integer; out of range saturates.
int64_t to_index(Integer value);

}  // namespace slime::text::jinja
