#include "text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "text/jinja/budget.h"
#include "text/jinja/print.h"

namespace slime::text::jinja {
namespace {

void include(Extent& whole, const Value& part) {
  const Extent extent = part.extent();
  whole.depth = std::max(whole.depth, extent.depth + 1);
  whole.size += extent.size;
  if (whole.depth > kMaxExtent.depth) {
    fail_limit(fmt::format("lists nested deeper than {}", kMaxExtent.depth));
  }
  if (whole.size > kMaxExtent.size)
    fail_limit(fmt::format("a list of more than {} bytes", kMaxExtent.size));
}

// As Jinja names the owner of a missing attribute.
std::string owner_name(const Value& object) {
  if (object.is_none()) return "None";
  return fmt::format("{} object", object.type_name());
}

}  // namespace

const Value* Dict::find(const Value& key, Budget& budget) const {
  if (const std::string* text = key.if_string()) return find(std::string_view(*text), budget);
  const auto found = std::find_if(members.begin(), members.end(), [&](const auto& member) {
    return equal(member.first, key, budget);
  });
  return found == members.end() ? nullptr : &found->second;
}

const Value* Dict::find(std::string_view key, Budget& budget) const {
  const auto found = std::find_if(members.begin(), members.end(), [&](const auto& member) {
    const std::string* text = member.first.if_string();
    return text != nullptr && *text == key;
  });
  const auto looked_at = static_cast<std::size_t>(found - members.begin());
  budget.take_pass(looked_at * 8 + key.size());
  return found == members.end() ? nullptr : &found->second;
}

std::optional<Integer> Value::if_integer() const {
  if (const auto* integer = std::get_if<Integer>(&storage_)) return *integer;
  if (const auto* boolean = std::get_if<bool>(&storage_)) return *boolean ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::if_number() const {
  if (const auto* number = std::get_if<double>(&storage_)) return *number;
  if (const auto integer = if_integer()) return static_cast<double>(*integer);
  if (const std::string* digits = if_big_integer()) return std::strtod(digits->c_str(), nullptr);
  return std::nullopt;
}

const std::string* Value::if_string() const {
  const auto* text = std::get_if<String>(&storage_);
  return text == nullptr ? nullptr : text->get();
}

const Sequence* Value::if_sequence() const {
  const auto* sequence = std::get_if<std::shared_ptr<const Sequence>>(&storage_);
  return sequence == nullptr ? nullptr : sequence->get();
}

const Sequence* Value::if_indexable() const {
  const Sequence* sequence = if_sequence();
  if (sequence == nullptr) return nullptr;
  const bool indexable = sequence->kind == SequenceKind::kList ||
                         sequence->kind == SequenceKind::kTuple ||
                         sequence->kind == SequenceKind::kRange;
  return indexable ? sequence : nullptr;
}

const Dict* Value::if_dict() const {
  const auto* dict = std::get_if<std::shared_ptr<const Dict>>(&storage_);
  return dict == nullptr ? nullptr : dict->get();
}

const Function* Value::if_function() const {
  const auto* function = std::get_if<std::shared_ptr<const Function>>(&storage_);
  return function == nullptr ? nullptr : function->get();
}

Object* Value::if_object() const {
  const auto* object = std::get_if<std::shared_ptr<Object>>(&storage_);
  return object == nullptr ? nullptr : object->get();
}

bool Value::truthy() const {
  if (is_none() || is_undefined()) return false;
  if (const auto number = if_number()) return *number != 0;
  if (const std::string* text = if_string()) return !text->empty();
  if (const Dict* dict = if_dict()) return !dict->members.empty();
  // A Python generator is true, whatever it will give.
  if (const Sequence* sequence = if_sequence()) {
    return sequence->kind == SequenceKind::kGenerator || !sequence->items.empty();
  }
  return true;
}

std::string_view Value::type_name() const {
  if (is_none()) return "NoneType";
  if (is_undefined()) return "Undefined";
  if (if_bool() != nullptr) return "bool";
  if (if_float() != nullptr) return "float";
  if (if_integer() || if_big_integer() != nullptr) return "int";
  if (if_string() != nullptr) return "str";
  if (if_dict() != nullptr) return "dict";
  if (if_function() != nullptr) return "function";
  if (const Object* object = if_object()) return object->type_name();
  switch (if_sequence()->kind) {
    case SequenceKind::kList:
      return "list";
    case SequenceKind::kTuple:
      return "tuple";
    case SequenceKind::kRange:
      return "range";
    case SequenceKind::kGenerator:
      return "generator";
    case SequenceKind::kKeys:
      return "dict_keys";
    case SequenceKind::kValues:
      return "dict_values";
    case SequenceKind::kItems:
      return "dict_items";
  }
  return "object";
}

Extent Value::extent() const {
  if (const Sequence* sequence = if_sequence()) return sequence->extent;
  if (const Dict* dict = if_dict()) return dict->extent;
  const std::string* text = if_string();
  if (text == nullptr) text = if_big_integer();
  return {.depth = 0, .size = text == nullptr ? 1 : static_cast<int64_t>(text->size()) + 1};
}

Value make_undefined(std::string reason) {
  return Undefined{std::make_shared<const std::string>(std::move(reason))};
}

Value missing_attribute(const Value& object, std::string_view name) {
  return make_undefined(
      fmt::format("'{}' has no attribute {}", owner_name(object), repr_of_text(name)));
}

Value missing_element(const Value& object, const Value& key) {
  if (const std::string* name = key.if_string()) return missing_attribute(object, *name);
  const auto index = key.if_integer();
  return make_undefined(fmt::format("{} has no element {}", owner_name(object),
                                    index ? to_decimal(*index) : std::string(key.type_name())));
}

Value make_sequence(SequenceKind kind, std::vector<Value> items) {
  auto sequence = std::make_shared<Sequence>();
  sequence->extent.depth = 1;
  for (const Value& item : items) include(sequence->extent, item);
  sequence->kind = kind;
  sequence->items = std::move(items);
  return std::shared_ptr<const Sequence>(std::move(sequence));
}

Value make_list(std::vector<Value> items) {
  return make_sequence(SequenceKind::kList, std::move(items));
}
Value make_tuple(std::vector<Value> items) {
  return make_sequence(SequenceKind::kTuple, std::move(items));
}

Value make_dict(std::vector<std::pair<Value, Value>> members) {
  auto dict = std::make_shared<Dict>();
  dict->extent.depth = 1;
  for (const auto& [key, value] : members) {
    include(dict->extent, key);
    include(dict->extent, value);
  }
  dict->members = std::move(members);
  return std::shared_ptr<const Dict>(std::move(dict));
}

namespace {

/// Of JSON, which has neither leading zeros nor a plus.
Value integer_of(std::string_view digits) {
  Integer value = 0;
  const bool is_negative = digits.starts_with('-');
  for (const char digit : digits.substr(is_negative ? 1 : 0)) {
    const Integer next = digit - '0';
    if (__builtin_mul_overflow(value, Integer{10}, &value) ||
        __builtin_add_overflow(value, is_negative ? -next : next, &value))
      return BigInteger{std::make_shared<const std::string>(digits)};
  }
  return value;
}

}  // namespace

Value from_json(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return None{};
    case json::kind::bool_:
      return value.get_bool();
    case json::kind::int64:
      return Integer{value.get_int64()};
    case json::kind::uint64:
      return static_cast<Integer>(value.get_uint64());
    case json::kind::double_:
      return value.get_double();
    case json::kind::string:
      return std::string_view(value.get_string());
    case json::kind::array: {
      std::vector<Value> items;
      items.reserve(value.get_array().size());
      for (const json::value& item : value.get_array()) items.push_back(from_json(item));
      return make_list(std::move(items));
    }
    case json::kind::object: {
      if (const json::string* digits = big_integer_digits(value)) return integer_of(*digits);
      std::vector<std::pair<Value, Value>> members;
      members.reserve(value.get_object().size());
      for (const auto& member : value.get_object()) {
        members.emplace_back(std::string_view(member.key()), from_json(member.value()));
      }
      return make_dict(std::move(members));
    }
  }
  return None{};
}

namespace {

/// Python compares an integer and a float by their exact values.
std::partial_ordering compare_exactly(Integer integer, double number) {
  constexpr double kBound = 1.7014118346046923e38;  // 2 ** 127
  if (std::isnan(number)) return std::partial_ordering::unordered;
  if (number >= kBound) return std::partial_ordering::less;
  if (number < -kBound) return std::partial_ordering::greater;
  const auto whole = static_cast<Integer>(number);  // towards zero
  if (integer != whole)
    return integer < whole ? std::partial_ordering::less : std::partial_ordering::greater;
  return 0.0 <=> number - std::trunc(number);
}

/// More than 128 bits each.
std::strong_ordering compare_digits(std::string_view a, std::string_view b) {
  const bool a_is_negative = a.starts_with('-');
  if (a_is_negative != b.starts_with('-'))
    return a_is_negative ? std::strong_ordering::less : std::strong_ordering::greater;
  if (a_is_negative) std::swap(a, b);
  return a.size() != b.size() ? a.size() <=> b.size() : a.compare(b) <=> 0;
}

}  // namespace

std::partial_ordering compare_numbers(const Value& left, const Value& right) {
  const auto i = left.if_integer(), j = right.if_integer();
  if (i && j) return *i <=> *j;
  const std::string *a = left.if_big_integer(), *b = right.if_big_integer();
  if (a != nullptr && b != nullptr) return compare_digits(*a, *b);
  const double *x = left.if_float(), *y = right.if_float();
  if (i && y != nullptr) return compare_exactly(*i, *y);
  if (x != nullptr && j) return 0 <=> compare_exactly(*j, *x);
  return *left.if_number() <=> *right.if_number();
}

bool equal(const Value& left, const Value& right, Budget& budget) {
  budget.take_steps();
  if (left.if_number()) return right.if_number() && compare_numbers(left, right) == 0;
  if (const std::string* a = left.if_string()) {
    const std::string* b = right.if_string();
    if (b == nullptr || a->size() != b->size()) return false;
    if (a == b) return true;
    budget.take_pass(a->size());
    return *a == *b;
  }
  if (const Sequence* a = left.if_sequence()) {
    const Sequence* b = right.if_sequence();
    if (b == nullptr || a->kind != b->kind) return false;
    if (a == b) return true;
    if (a->kind == SequenceKind::kGenerator || a->kind == SequenceKind::kValues) return false;
    const auto same = [&](const Value& x, const Value& y) { return equal(x, y, budget); };
    return std::equal(a->items.begin(), a->items.end(), b->items.begin(), b->items.end(), same);
  }
  if (const Dict* a = left.if_dict()) {
    const Dict* b = right.if_dict();
    if (b == nullptr || a->members.size() != b->members.size()) return false;
    if (a == b) return true;
    return std::all_of(a->members.begin(), a->members.end(), [&](const auto& member) {
      const Value* other = b->find(member.first, budget);
      return other != nullptr && equal(member.second, *other, budget);
    });
  }
  if (left.is_none()) return right.is_none();
  if (left.is_undefined()) return right.is_undefined();
  if (const Function* function = left.if_function()) return function == right.if_function();
  return left.if_object() == right.if_object();
}

bool is_hashable(const Value& value, Budget& budget) {
  budget.take_steps();
  if (value.if_dict() != nullptr) return false;
  const Sequence* sequence = value.if_sequence();
  if (sequence == nullptr) return true;
  if (sequence->kind == SequenceKind::kList) return false;
  return sequence->kind != SequenceKind::kTuple ||
         std::all_of(sequence->items.begin(), sequence->items.end(),
                     [&](const Value& item) { return is_hashable(item, budget); });
}

}  // namespace slime::text::jinja
