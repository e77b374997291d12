#include "core/field_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/nearest_name.h"

namespace slime {
namespace {

constexpr std::size_t kMostShown = 80;  // bytes of a foreign word in a message

bool asks_for_nothing(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return true;
    case json::kind::bool_:
      return !value.get_bool();
    case json::kind::int64:
      return value.get_int64() == 0;
    case json::kind::uint64:
      return value.get_uint64() == 0;
    case json::kind::double_:
      return value.get_double() == 0;
    case json::kind::string:
      return value.get_string().empty();
    case json::kind::array:
      return value.get_array().empty();
    case json::kind::object:
      return value.get_object().empty();
  }
  return false;
}

/// Ends at a character, so that the message stays UTF-8.
std::string_view shortened(std::string_view text) {
  if (text.size() <= kMostShown) return text;
  std::size_t end = kMostShown;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0U) == 0x80U) --end;
  return text.substr(0, end);
}

template <typename T>
std::string range_rule(std::string_view what, T low, T high, T lowest, T highest) {
  if (low == high) return fmt::format("must be {}", low);
  if (low == lowest && high == highest) return fmt::format("must be a {}", what);
  if (high == highest) return fmt::format("must be a {} of at least {}", what, low);
  if (low == lowest) return fmt::format("must be a {} of at most {}", what, high);
  return fmt::format("must be a {} from {} to {}", what, low, high);
}

}  // namespace

std::optional<int64_t> whole_number(const json::value& value) {
  if (const auto* number = value.if_int64()) return *number;
  // Not from a text, but from numbers that a program put there without sign.
  if (const auto* number = value.if_uint64(); number != nullptr && *number <= INT64_MAX)
    return static_cast<int64_t>(*number);
  if (const auto* number = value.if_double()) {
    if (std::abs(*number) < 9.0e15 && *number == std::floor(*number))
      return static_cast<int64_t>(*number);
  }
  return std::nullopt;
}

std::string shown(const json::value& value) {
  if (value.is_array()) return value.get_array().empty() ? "[]" : "a list";
  if (value.is_object()) return "an object";
  if (const json::string* text = value.if_string()) {
    const std::string_view part = shortened(*text);
    return json_text(json::string(part)) + (part.size() < text->size() ? "..." : "");
  }
  if (const double* number = value.if_double()) return fmt::format("{}", *number);  // not 2.5E0
  return json_text(value);
}

void FieldReader::tell(std::string problem) const {
  if (problems_ == nullptr) throw ConfigError(problem);
  if (problems_->size() < kMostProblems) problems_->push_back(std::move(problem));
}

void FieldReader::note(std::string_view name, std::string_view sentence) const {
  tell(fmt::format("{}{} {}", prefix_, shortened(name), sentence));
}

void FieldReader::note_object(std::string_view sentence) const {
  std::string_view path = prefix_;
  if (path.ends_with('.')) path.remove_suffix(1);
  const bool is_top = path.empty() || path.ends_with(' ');
  tell(fmt::format("{}{}{}", path, is_top ? "" : " ", sentence));
}

void FieldReader::wrong(std::string_view name, std::string_view rule) const {
  const json::value* value = find(name);
  note(name, value == nullptr ? std::string(rule) : fmt::format("{}, not {}", rule, shown(*value)));
}

FieldReader FieldReader::required() const {
  FieldReader fields = *this;
  fields.is_required_ = true;
  return fields;
}

FieldReader FieldReader::inside(const json::object& object, std::string_view name) const {
  FieldReader fields(object, fmt::format("{}{}.", prefix_, shortened(name)));
  fields.problems_ = problems_;
  return fields;
}

const json::value* FieldReader::find(std::string_view name) const {
  const json::value* value = object_->if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const json::value* FieldReader::given(std::string_view name, std::string_view rule) const {
  const json::value* value = find(name);
  if (value == nullptr && is_required_) note(name, fmt::format("is missing; it {}", rule));
  return value;
}

std::optional<bool> FieldReader::boolean(std::string_view name) const {
  constexpr std::string_view kRule = "must be true or false";
  const json::value* value = given(name, kRule);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->get_bool();
  wrong(name, kRule);
  return std::nullopt;
}

std::optional<int64_t> FieldReader::integer(std::string_view name, int64_t low,
                                            int64_t high) const {
  const json::value* value = find(name);
  if (value == nullptr && !is_required_) return std::nullopt;
  if (value != nullptr) {
    const auto number = whole_number(*value);
    if (number && *number >= low && *number <= high) return number;
  }
  using Limits = std::numeric_limits<int64_t>;
  const std::string rule = range_rule("whole number", low, high, Limits::min(), Limits::max());
  if (given(name, rule) != nullptr) wrong(name, rule);
  return std::nullopt;
}

std::optional<double> FieldReader::number(std::string_view name, double low, double high) const {
  const json::value* value = find(name);
  if (value == nullptr && !is_required_) return std::nullopt;
  if (value != nullptr && value->is_number()) {
    const auto number = value->to_number<double>();
    if (std::isfinite(number) && number >= low && number <= high) return number;
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool is_bounded = std::isfinite(low) || std::isfinite(high);
  const std::string rule =
      range_rule(is_bounded ? "number" : "finite number", low, high, -kInfinity, kInfinity);
  if (given(name, rule) != nullptr) wrong(name, rule);
  return std::nullopt;
}

std::optional<std::string> FieldReader::text(std::string_view name, std::size_t limit_bytes) const {
  const json::value* value = find(name);
  if (value == nullptr && !is_required_) return std::nullopt;
  if (value != nullptr && value->is_string() && value->get_string().size() <= limit_bytes)
    return std::string(value->get_string());
  const std::string rule = limit_bytes == std::string::npos
                               ? "must be a string"
                               : fmt::format("must be a string of at most {} bytes", limit_bytes);
  if (given(name, rule) != nullptr) wrong(name, rule);
  return std::nullopt;
}

std::optional<std::string> FieldReader::one_of(std::string_view name,
                                               std::span<const std::string_view> allowed) const {
  const json::value* value = find(name);
  if (value == nullptr && !is_required_) return std::nullopt;
  if (value != nullptr && value->is_string() &&
      std::ranges::find(allowed, std::string_view(value->get_string())) != allowed.end())
    return std::string(value->get_string());
  const std::string rule = fmt::format("must be one of {}", fmt::join(allowed, ", "));
  if (given(name, rule) != nullptr) wrong(name, rule);
  return std::nullopt;
}

const json::object* FieldReader::object(std::string_view name) const {
  constexpr std::string_view kRule = "must be an object";
  const json::value* value = given(name, kRule);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) wrong(name, kRule);
  return value->if_object();
}

const json::array* FieldReader::array(std::string_view name) const {
  constexpr std::string_view kRule = "must be a list";
  const json::value* value = given(name, kRule);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) wrong(name, kRule);
  return value->if_array();
}

std::optional<FieldReader> FieldReader::fields(std::string_view name) const {
  const json::object* members = object(name);
  if (members == nullptr) return std::nullopt;
  return inside(*members, name);
}

std::vector<FieldReader> FieldReader::list(std::string_view name) const {
  std::vector<FieldReader> readers;
  const json::array* elements = array(name);
  if (elements == nullptr) return readers;
  for (std::size_t i = 0; i < elements->size(); ++i) {
    const std::string path = fmt::format("{}[{}]", name, i);
    if (const json::object* members = (*elements)[i].if_object()) {
      readers.push_back(inside(*members, path));
    } else {
      note(path, fmt::format("must be an object, not {}", shown((*elements)[i])));
    }
  }
  return readers;
}

std::vector<std::string> FieldReader::strings(std::string_view name) const {
  constexpr std::string_view kRule = "must be a list of strings";
  const json::value* value = given(name, kRule);
  if (value == nullptr) return {};
  std::vector<std::string> result;
  const json::array* elements = value->if_array();
  if (elements == nullptr ||
      !std::ranges::all_of(*elements, [](const json::value& one) { return one.is_string(); })) {
    wrong(name, kRule);
    return result;
  }
  for (const json::value& element : *elements) result.emplace_back(element.get_string());
  return result;
}

std::vector<std::string> FieldReader::texts(std::string_view name, std::size_t limit_count,
                                            std::size_t limit_bytes) const {
  const std::string rule =
      limit_count == std::string::npos
          ? "must be a string or a list of strings, none of them empty"
          : fmt::format("must be a string or a list of at most {} strings, each of 1 to {} bytes",
                        limit_count, limit_bytes);
  const json::value* value = given(name, rule);
  if (value == nullptr) return {};
  std::vector<std::string> result;
  const auto add = [&](const json::value& element) {
    const json::string* string = element.if_string();
    if (string == nullptr || string->empty() || string->size() > limit_bytes) return false;
    result.emplace_back(*string);
    return true;
  };
  if (value->is_string() && value->get_string().empty()) return {};
  bool is_right = true;
  if (const json::array* elements = value->if_array()) {
    is_right = elements->size() <= limit_count;
    for (std::size_t i = 0; is_right && i < elements->size(); ++i) is_right = add((*elements)[i]);
  } else {
    is_right = add(*value);
  }
  if (is_right) return result;
  wrong(name, rule);
  return {};
}

template <typename T>
std::vector<T> FieldReader::numbers(std::string_view name) const {
  constexpr std::string_view kRule =
      std::is_floating_point_v<T> ? "must be a list of numbers" : "must be a list of whole numbers";
  const json::value* value = given(name, kRule);
  if (value == nullptr) return {};
  const json::array* elements = value->if_array();
  if (elements == nullptr) {
    wrong(name, kRule);
    return {};
  }
  std::vector<T> result;
  result.reserve(elements->size());
  for (const json::value& element : *elements) {
    json::error_code error;
    result.push_back(element.to_number<T>(error));
    if (!error) continue;
    note(fmt::format("{}[{}]", name, result.size() - 1),
         fmt::format("must be a {} from {} to {}, not {}",
                     std::is_floating_point_v<T> ? "number" : "whole number",
                     +std::numeric_limits<T>::lowest(), +std::numeric_limits<T>::max(),
                     shown(element)));
    return {};
  }
  return result;
}

template std::vector<int32_t> FieldReader::numbers(std::string_view) const;
template std::vector<int64_t> FieldReader::numbers(std::string_view) const;
template std::vector<uint8_t> FieldReader::numbers(std::string_view) const;
template std::vector<float> FieldReader::numbers(std::string_view) const;
template std::vector<double> FieldReader::numbers(std::string_view) const;

std::vector<int32_t> FieldReader::token_ids(std::string_view name, int64_t vocab_size) const {
  const json::value* value = given(name, "must be a list of token ids");
  return value == nullptr ? std::vector<int32_t>{} : token_ids(*value, name, vocab_size);
}

std::vector<int32_t> FieldReader::token_ids(const json::value& list, std::string_view name,
                                            int64_t vocab_size) const {
  const json::array* elements = list.if_array();
  std::vector<int32_t> ids;
  if (elements != nullptr) ids.reserve(elements->size());
  const json::value* odd = elements == nullptr ? &list : nullptr;
  for (std::size_t i = 0; odd == nullptr && i < elements->size(); ++i) {
    const auto id = whole_number((*elements)[i]);
    if (id && *id >= 0 && *id < vocab_size)
      ids.push_back(static_cast<int32_t>(*id));
    else
      odd = &(*elements)[i];
  }
  if (odd == nullptr) return ids;
  const std::string place = elements == nullptr ? "" : fmt::format(" at index {}", ids.size());
  note(name, fmt::format("must be a list of token ids, whole numbers from 0 to {}, not {}{}",
                         vocab_size - 1, shown(*odd), place));
  return {};
}

void FieldReader::refuse(std::string_view name, std::string_view why) const {
  const json::value* value = find(name);
  if (value != nullptr && !asks_for_nothing(*value)) note(name, why);
}

std::vector<std::string> FieldReader::unknown_fields(
    std::span<const std::string_view> known) const {
  std::vector<std::string> sentences;
  for (const auto& member : *object_) {
    const std::string_view name = member.key();
    if (std::ranges::find(known, name) != known.end()) continue;
    if (sentences.size() == kMostProblems) break;
    sentences.push_back(fmt::format("{}{} is unknown", prefix_, shortened(name)) +
                        did_you_mean(name, known));
  }
  return sentences;
}

void FieldReader::refuse_unknown(std::span<const std::string_view> known) const {
  for (std::string& sentence : unknown_fields(known)) tell(std::move(sentence));
}

}  // namespace slime
