#include "text/grammar/schema_ends.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

namespace slime::text {
namespace {

class Ends final {
 public:
  explicit Ends(const json::object& definitions) {
    for (bool is_changed = true; is_changed;) {
      is_changed = false;
      for (const auto& definition : definitions) {
        if (ending_.contains(std::string(definition.key())) || !ends(definition.value())) continue;
        ending_.insert(std::string(definition.key()));
        is_changed = true;
      }
    }
  }

  bool ends(const json::value& schema) const {
    return schema.is_bool() ? schema.get_bool() : ends(schema.get_object());
  }

  bool ends(const json::object& schema) const {
    if (const auto* reference = schema.if_contains("$ref")) {
      constexpr std::string_view kPlace = "#/$defs/";
      return ending_.contains(std::string(reference->get_string()).substr(kPlace.size()));
    }
    const auto one_ends = [&](const json::value& one) { return ends(one); };
    if (const auto* any = schema.if_contains("anyOf"))
      return std::any_of(any->get_array().begin(), any->get_array().end(), one_ends);
    if (const auto* prefix = schema.if_contains("prefixItems")) {
      if (!std::all_of(prefix->get_array().begin(), prefix->get_array().end(), one_ends))
        return false;
    }
    if (schema.contains("minItems") && schema.contains("items") && !ends(schema.at("items"))) {
      const auto* prefix = schema.if_contains("prefixItems");
      const std::size_t given = prefix == nullptr ? 0 : prefix->get_array().size();
      if (schema.at("minItems").to_number<std::size_t>() > given) return false;
    }
    const auto* required = schema.if_contains("required");
    return required == nullptr ||
           std::all_of(required->get_array().begin(), required->get_array().end(),
                       [&](const json::value& name) {
                         return ends(schema.at("properties").at(name.get_string()));
                       });
  }

 private:
  std::set<std::string> ending_;
};

}  // namespace

bool has_finite_value(const json::object& schema, const json::object& definitions) {
  return Ends(definitions).ends(schema);
}

}  // namespace slime::text
