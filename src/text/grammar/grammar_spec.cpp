#include "text/grammar/grammar_spec.h"

#include <array>
#include <utility>

#include "core/error.h"

namespace slime::text {
namespace {

constexpr auto kNames = std::to_array<std::pair<GrammarKind, std::string_view>>({
    {GrammarKind::kJsonSchema, "json_schema"},
    {GrammarKind::kJsonObject, "json_object"},
    {GrammarKind::kRegex, "regex"},
    {GrammarKind::kEbnf, "ebnf"},
    {GrammarKind::kStructuralTag, "structural_tag"},
});

}  // namespace

std::string_view grammar_kind_name(GrammarKind kind) {
  for (const auto& [known, name] : kNames) {
    if (known == kind) return name;
  }
  throw BugError("a grammar kind without a name");
}

std::optional<GrammarKind> find_grammar_kind(std::string_view name) {
  for (const auto& [kind, known] : kNames) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

}  // namespace slime::text
