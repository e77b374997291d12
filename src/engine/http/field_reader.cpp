#include "engine/http/field_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/nearest_name.h"

namespace slime::engine {
namespace {

/// One message lists at most this many bad elements; a hostile list is not worth more.
constexpr std::size_t kMaxProblems = 20;

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

/// A client's word, not too long for a message.
std::string quotable(std::string_view word) {
  std::size_t length = 64;
  if (word.size() <= length) return std::string(word);
  while ((static_cast<unsigned char>(word[length]) & 0xc0) == 0x80) --length;  // whole characters
  return std::string(word.substr(0, length)) + "...";
}

}  // namespace

json::object parse_body(std::string_view body) {
  json::value value = parse_json(body, "request body");
  if (const auto key = find_duplicate_key(body))
    throw ConfigError(fmt::format("request body: the key \"{}\" stands twice in one object", *key));
  if (!value.is_object()) throw ConfigError("request body: must be a JSON object");
  return std::move(value.get_object());
}

std::optional<std::int64_t> whole_number(const json::value& value) {
  if (const auto* number = value.if_int64()) return *number;
  if (const auto* number = value.if_double()) {
    if (std::abs(*number) < 9.0e15 && *number == std::floor(*number))
      return static_cast<std::int64_t>(*number);
  }
  return std::nullopt;
}

void FieldReader::note(std::string_view name, std::string_view sentence) {
  if (problems_.size() < kMaxProblems)
    problems_.push_back(fmt::format("{}{} {}", prefix_, name, sentence));
}

const json::value* FieldReader::find(std::string_view name) const {
  const json::value* value = object_.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<bool> FieldReader::boolean(std::string_view name) {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->get_bool();
  note(name, "must be true or false");
  return std::nullopt;
}

std::optional<std::int64_t> FieldReader::integer(std::string_view name, std::int64_t low,
                                                 std::int64_t high) {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto number = whole_number(*value);
  if (number && *number >= low && *number <= high) return number;
  note(name, fmt::format("must be a whole number from {} to {}", low, high));
  return std::nullopt;
}

std::optional<double> FieldReader::number(std::string_view name) {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const double number = value->to_number<double>();
    if (std::isfinite(number)) return number;
  }
  note(name, "must be a finite number");
  return std::nullopt;
}

std::optional<std::string> FieldReader::text(std::string_view name, std::size_t limit_bytes) {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string() && value->get_string().size() <= limit_bytes)
    return std::string(value->get_string());
  note(name, fmt::format("must be a string of at most {} bytes", limit_bytes));
  return std::nullopt;
}

const json::object* FieldReader::object(std::string_view name) {
  const json::value* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) note(name, "must be an object");
  return value->if_object();
}

const json::array* FieldReader::array(std::string_view name) {
  const json::value* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) note(name, "must be a list");
  return value->if_array();
}

std::vector<std::string> FieldReader::texts(std::string_view name, std::size_t limit_count,
                                            std::size_t limit_bytes) {
  const json::value* value = find(name);
  if (value == nullptr) return {};
  const std::string rule =
      fmt::format("must be a string or a list of at most {} strings, each of 1 to {} bytes",
                  limit_count, limit_bytes);
  std::vector<std::string> result;
  const auto add = [&](const json::value& element) {
    const json::string* string = element.if_string();
    if (string == nullptr || string->empty() || string->size() > limit_bytes) return false;
    result.emplace_back(*string);
    return true;
  };
  if (value->is_string() && value->get_string().empty()) return {};
  bool is_right = true;
  if (const json::array* list = value->if_array()) {
    is_right = list->size() <= limit_count;
    for (std::size_t i = 0; is_right && i < list->size(); ++i) is_right = add((*list)[i]);
  } else {
    is_right = add(*value);
  }
  if (is_right) return result;
  note(name, rule);
  return {};
}

std::vector<TokenId> FieldReader::token_ids(std::string_view name, std::int64_t vocab_size) {
  const json::value* value = find(name);
  return value == nullptr ? std::vector<TokenId>{} : token_ids(*value, name, vocab_size);
}

std::vector<TokenId> FieldReader::token_ids(const json::value& list, std::string_view name,
                                            std::int64_t vocab_size) {
  const json::array* elements = list.if_array();
  std::vector<TokenId> ids;
  bool is_right = elements != nullptr;
  if (is_right) ids.reserve(elements->size());
  for (std::size_t i = 0; is_right && i < elements->size(); ++i) {
    const auto id = whole_number((*elements)[i]);
    is_right = id && *id >= 0 && *id < vocab_size;
    if (is_right) ids.push_back(static_cast<TokenId>(*id));
  }
  if (is_right) return ids;
  note(name,
       fmt::format("must be a list of token ids, whole numbers from 0 to {}", vocab_size - 1));
  return {};
}

void FieldReader::refuse_unknown(std::span<const std::string_view> known) {
  for (const auto& member : object_) {
    if (problems_.size() >= kMaxProblems) return;
    const std::string_view name = member.key();
    if (std::ranges::find(known, name) != known.end()) continue;
    const auto nearest = nearest_name(name, known);
    note(quotable(name),
         nearest ? fmt::format("is unknown; did you mean {}?", *nearest) : "is unknown");
  }
}

void FieldReader::refuse(std::string_view name, std::string_view why) {
  const json::value* value = find(name);
  if (value != nullptr && !asks_for_nothing(*value)) note(name, why);
}

}  // namespace slime::engine
