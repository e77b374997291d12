#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "model/families/family.h"

namespace slime::model {

const json::value* FieldReader::find(std::string_view field) const {
  const json::value* value = object_.if_contains(field);
  return value != nullptr && value->is_null() ? nullptr : value;
}

bool FieldReader::has(std::string_view field) const { return find(field) != nullptr; }

void FieldReader::problem(std::string_view field, std::string_view sentence) {
  const json::value* value = object_.if_contains(field);
  std::string shown = value == nullptr ? "absent" : json::serialize(*value);
  if (shown.size() > 80) shown.replace(77, std::string::npos, "...");
  problems_.push_back(fmt::format("{}: {} is {}: {}", where_, field, shown, sentence));
}

int64_t FieldReader::integer(std::string_view field, int64_t low, int64_t high,
                             std::optional<int64_t> absent) {
  const json::value* value = find(field);
  if (value == nullptr) {
    if (!absent) problem(field, fmt::format("an integer from {} to {} is needed", low, high));
    return absent.value_or(low);
  }
  json::error_code error;
  const auto number = value->is_number() ? value->to_number<int64_t>(error) : low - 1;
  if (error || number < low || number > high) {
    problem(field, fmt::format("must be an integer from {} to {}", low, high));
    return low;
  }
  return number;
}

double FieldReader::number(std::string_view field, double low, double high,
                           std::optional<double> absent) {
  const json::value* value = find(field);
  if (value == nullptr) {
    if (!absent) problem(field, fmt::format("a number from {} to {} is needed", low, high));
    return absent.value_or(low);
  }
  const double number = value->is_number() ? value->to_number<double>() : std::nan("");
  if (!(number >= low && number <= high)) {
    problem(field, fmt::format("must be a number from {} to {}", low, high));
    return low;
  }
  return number;
}

bool FieldReader::boolean(std::string_view field, bool absent) {
  const json::value* value = find(field);
  if (value == nullptr) return absent;
  if (const bool* truth = value->if_bool()) return *truth;
  problem(field, "must be true or false");
  return absent;
}

std::string FieldReader::text(std::string_view field, std::string_view absent) {
  const json::value* value = find(field);
  if (value == nullptr) return std::string(absent);
  if (const json::string* text = value->if_string()) return std::string(*text);
  problem(field, "must be a string");
  return std::string(absent);
}

const json::object* FieldReader::object(std::string_view field) {
  const json::value* value = find(field);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) problem(field, "must be an object");
  return value->if_object();
}

const json::array* FieldReader::array(std::string_view field) {
  const json::value* value = find(field);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) problem(field, "must be a list");
  return value->if_array();
}

void FieldReader::expect_text(std::string_view field, std::span<const std::string_view> allowed) {
  const json::value* value = find(field);
  if (value == nullptr) return;
  const json::string* text = value->if_string();
  for (const std::string_view word : allowed) {
    if (text != nullptr && std::string_view(*text) == word) return;
  }
  problem(field, fmt::format("supported here: {}", fmt::join(allowed, ", ")));
}

void FieldReader::expect_number(std::string_view field, double expected) {
  const json::value* value = find(field);
  if (value == nullptr) return;
  if (!value->is_number() || value->to_number<double>() != expected) {
    problem(field, fmt::format("supported here: {}", expected));
  }
}

}  // namespace slime::model
