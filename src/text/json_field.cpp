#include "text/json_field.h"

#include <fmt/format.h>

namespace slime::text {
namespace {

constexpr std::size_t kMaxProblems = 20;  // more of them help nobody

std::string_view kind_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
    default:
      return "a number";
  }
}

}  // namespace

JsonField JsonField::operator[](std::string_view key) const {
  static const json::value null;
  const json::object* object = value_->if_object();
  const json::value* member = object == nullptr ? nullptr : object->if_contains(key);
  const bool is_top = path_.ends_with(": ");
  return {member == nullptr ? null : *member, path_ + (is_top ? "" : ".") + std::string(key),
          *problems_};
}

std::vector<JsonField> JsonField::elements() const {
  std::vector<JsonField> out;
  for (const json::value& element : array()) {
    out.emplace_back(element, fmt::format("{}[{}]", path_, out.size()), *problems_);
  }
  return out;
}

std::string_view JsonField::string() const {
  if (const json::string* text = value_->if_string()) return *text;
  reject(fmt::format("is {}, must be a string", kind_name(*value_)));
  return {};
}

bool JsonField::boolean(std::optional<bool> otherwise) const {
  if (const bool* truth = value_->if_bool()) return *truth;
  if (is_null() && otherwise) return *otherwise;
  reject(fmt::format("is {}, must be true or false", kind_name(*value_)));
  return false;
}

int64_t JsonField::integer(int64_t lowest, int64_t highest,
                           std::optional<int64_t> otherwise) const {
  if (is_null() && otherwise) return *otherwise;
  if (const int64_t* number = value_->if_int64();
      number != nullptr && *number >= lowest && *number <= highest) {
    return *number;
  }
  reject(fmt::format("must be an integer from {} to {}", lowest, highest));
  return lowest;
}

bool JsonField::is_zero() const {
  if (const int64_t* integer = value_->if_int64()) return *integer == 0;
  const double* number = value_->if_double();
  return number != nullptr && *number == 0;
}

const json::object& JsonField::object() const {
  static const json::object empty;
  if (const json::object* object = value_->if_object()) return *object;
  reject(fmt::format("is {}, must be an object", kind_name(*value_)));
  return empty;
}

const json::array& JsonField::array() const {
  static const json::array empty;
  if (const json::array* array = value_->if_array()) return *array;
  reject(fmt::format("is {}, must be an array", kind_name(*value_)));
  return empty;
}

void JsonField::reject(std::string_view what) const {
  if (problems_->size() < kMaxProblems) problems_->push_back(fmt::format("{} {}", path_, what));
}

}  // namespace slime::text
