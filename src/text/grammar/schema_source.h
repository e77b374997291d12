#pragma once

/// Parts of a JSON schema that one value must all satisfy, with their places.

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace slime::text {

/// A schema, or what is left of it: keywords that were already taken into account are left out.
struct SchemaSource {
  enum Taken : uint8_t { kNothing = 0, kRefs = 1, kAnyOf = 2, kOneOf = 4 };

  const json::value* schema = nullptr;
  std::string place = {};  // a JSON pointer from the root: "#/properties/a"
  uint8_t taken = kNothing;

  const json::object& object() const { return schema->get_object(); }
  /// Null when there is none, or it is taken.
  const json::value* find(std::string_view keyword) const;
  SchemaSource member(std::string_view keyword) const;  // which is there
  std::string place_of(std::string_view keyword) const;
};

/// Throws ConfigError: `place`, and what is wrong there.
[[noreturn]] void refuse_schema(const std::string& where, const std::string& place,
                                std::string_view problem);

/// The root, and how references into it are resolved.
class SchemaRoot final {
 public:
  SchemaRoot(const json::value& root, std::string where) : root_(&root), where_(std::move(where)) {}

  SchemaSource source() const { return {.schema = root_, .place = "#"}; }
  const std::string& where() const { return where_; }

  /// What {"$ref": ...} refers to, through references that are nothing else.
  SchemaSource resolve(const SchemaSource& source) const;
  /// A reference, and no keyword beside it that means anything.
  static bool is_reference(const json::value& schema);

  /// The sources with those of their allOf and $ref, which are marked as taken; schemas that are true are
  /// left out. Nothing: one of them is false, and `why` is its place. Refuses keywords that cannot be
  /// bound.
  std::optional<std::vector<SchemaSource>> flatten(const std::vector<SchemaSource>& sources,
                                                   std::string& why) const;

 private:
  const json::value* at_pointer(std::string_view pointer) const;
  SchemaSource target(const SchemaSource& source) const;
  bool flatten(const SchemaSource& source, std::vector<const json::value*>& above,
               std::set<const json::value*>& seen, std::vector<SchemaSource>& out,
               std::string& why) const;

  const json::value* root_;
  std::string where_;
};

/// Kinds of values, as bits.
enum SchemaTypes : uint8_t {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kFractionType = 8,  // numbers that are not whole
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kNumberTypes = kIntegerType | kFractionType,
  kAllTypes = 127,
};

/// What `type` allows, nothing where it is absent.
std::optional<uint8_t> declared_types(const SchemaSource& source, const std::string& where);
/// Those of which the source's keywords say something.
uint8_t implied_types(const SchemaSource& source);
uint8_t type_of_value(const json::value& value);

/// True where the source says something about values, in keywords that are not taken.
bool has_meaning(const SchemaSource& source);

}  // namespace slime::text
