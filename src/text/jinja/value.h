#pragma once

/// Values of the template language: Python's, as far as a chat template can see them.
///
/// All values but objects (namespace, loop, ...) are immutable and shared by reference count, so a
/// copy is cheap and the messages of a conversation are converted once. Strings are UTF-8; indices
/// and lengths count code points.

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/json.h"

namespace slime::text::jinja {

class Budget;
class Interpreter;
class Value;

/// Python's integers have no bound. Those of 128 bits are computed with; overflow is an error, never
/// a wrong number.
using Integer = __int128;

/// An integer of more than 128 bits, of the messages or tools: it prints and compares as in Python,
/// nothing is computed with it.
struct BigInteger {
  std::shared_ptr<const std::string> digits;  // without leading zeros, "-" in front where negative
};

/// Jinja's Undefined: prints as nothing, is false and empty; any other use fails with `reason`.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};

struct None {};

enum class SequenceKind { kList, kTuple, kRange, kGenerator, kKeys, kValues, kItems };

/// How large a value is when written out; bounded, so that printing, comparing and destroying it
/// is.
struct Extent {
  int depth = 0;     // levels of lists and dictionaries
  int64_t size = 1;  // elements, plus the bytes of strings; shared parts count each time
};

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  std::string range_repr;  // "range(0, 3)", of ranges only
  Extent extent;
  mutable bool consumed = false;  // a generator gives its items once, as in Python
};

/// In insertion order. Look-up is linear: dictionaries of messages and tools are short. What it
/// looks at is charged.
struct Dict {
  std::vector<std::pair<Value, Value>> members;
  Extent extent;

  const Value* find(const Value& key, Budget& budget) const;
  const Value* find(std::string_view key, Budget& budget) const;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// A macro, a method bound to its value, or a global function.
struct Function {
  std::string repr;
  std::function<Value(Interpreter&, Arguments)> call;
};

/// What has attributes of its own.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::optional<Value> attribute(std::string_view name) = 0;
  virtual std::string_view type_name() const = 0;
  virtual std::string repr() const = 0;
};

class Value {
 public:
  using String = std::shared_ptr<const std::string>;

  Value() = default;  // None
  Value(None) {}
  Value(Undefined undefined) : storage_(std::move(undefined)) {}
  Value(bool boolean) : storage_(boolean) {}
  Value(Integer integer) : storage_(integer) {}
  Value(int integer) : storage_(Integer{integer}) {}
  Value(int64_t integer) : storage_(Integer{integer}) {}
  Value(std::size_t integer) : storage_(static_cast<Integer>(integer)) {}
  Value(double number) : storage_(number) {}
  Value(BigInteger integer) : storage_(std::move(integer)) {}
  Value(std::string text) : storage_(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(String text) : storage_(std::move(text)) {}
  Value(std::shared_ptr<const Sequence> sequence) : storage_(std::move(sequence)) {}
  Value(std::shared_ptr<const Dict> dict) : storage_(std::move(dict)) {}
  Value(std::shared_ptr<const Function> function) : storage_(std::move(function)) {}
  Value(std::shared_ptr<Object> object) : storage_(std::move(object)) {}
  Value(const void*) = delete;  // no pointer is a bool here

  bool is_undefined() const { return std::holds_alternative<Undefined>(storage_); }
  bool is_none() const { return std::holds_alternative<None>(storage_); }
  /// Python's int, to which bool belongs: 0 and 1.
  std::optional<Integer> if_integer() const;
  const std::string* if_big_integer() const {
    const auto* big = std::get_if<BigInteger>(&storage_);
    return big == nullptr ? nullptr : big->digits.get();
  }
  /// int, bool or float; of a big integer the nearest.
  std::optional<double> if_number() const;
  const bool* if_bool() const { return std::get_if<bool>(&storage_); }
  const double* if_float() const { return std::get_if<double>(&storage_); }
  const std::string* if_string() const;
  const Sequence* if_sequence() const;
  /// A list or a tuple: what has an order, a length and indices (ranges too).
  const Sequence* if_indexable() const;
  const Dict* if_dict() const;
  const Function* if_function() const;
  Object* if_object() const;
  const std::string& undefined_reason() const { return *std::get<Undefined>(storage_).reason; }

  bool truthy() const;
  /// As Python's type(x).__name__: "str", "NoneType", "dict".
  std::string_view type_name() const;
  Extent extent() const;

 private:
  std::variant<None, Undefined, bool, Integer, BigInteger, double, String,
               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
               std::shared_ptr<const Function>, std::shared_ptr<Object>>
      storage_;
};

Value make_undefined(std::string reason);
/// The Undefined that stands for a missing attribute or element, with Jinja's wording.
Value missing_attribute(const Value& object, std::string_view name);
Value missing_element(const Value& object, const Value& key);

/// A value beyond these is a limit error.
inline constexpr Extent kMaxExtent{.depth = 200, .size = int64_t{256} << 20};
Value make_list(std::vector<Value> items);
Value make_tuple(std::vector<Value> items);
Value make_sequence(SequenceKind kind, std::vector<Value> items);
Value make_dict(std::vector<std::pair<Value, Value>> members);

Value from_json(const json::value& value);

/// Python's ==: numbers by value, sequences of one kind and dictionaries by content, objects by
/// identity. Charged by the elements and bytes that are compared.
bool equal(const Value& left, const Value& right, Budget& budget);
/// Python's order of two values that have if_number().
std::partial_ordering compare_numbers(const Value& left, const Value& right);
/// Whether Python could use it as a dictionary key. Charged by the elements of its tuples.
bool is_hashable(const Value& value, Budget& budget);

}  // namespace slime::text::jinja
