#include "text/jinja/template.h"

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace slime::text {

std::string_view to_string(TemplateErrorKind kind) {
  switch (kind) {
    case TemplateErrorKind::kTemplate:
      return "template";
    case TemplateErrorKind::kUndefined:
      return "undefined";
    case TemplateErrorKind::kType:
      return "type";
    case TemplateErrorKind::kRefused:
      return "refused";
    case TemplateErrorKind::kLimit:
      return "limit";
  }
  return "type";
}

}  // namespace slime::text

namespace slime::text::jinja {

struct Template::Tree {
  ParsedTemplate parsed;
};

Template Template::parse(std::string_view source) {
  auto tree = std::make_shared<Tree>();
  tree->parsed = parse_template(source);
  return Template(std::move(tree));
}

const std::set<std::string, std::less<>>& Template::names() const { return tree_->parsed.names; }

Expected<std::string, TemplateError> Template::render(const Variables& variables,
                                                      const RenderOptions& options) const {
  Interpreter interpreter(options.limits, options.now, options.trace);
  std::vector<std::pair<std::string_view, Value>> scope;
  scope.reserve(variables.size());
  for (const auto& [name, value] : variables) scope.emplace_back(name, value);
  try {
    return interpreter.run(tree_->parsed.body, std::move(scope));
  } catch (EvaluationError& error) {
    return tl::make_unexpected(
        TemplateError{error.kind, std::move(error.message), interpreter.line()});
  }
}

}  // namespace slime::text::jinja
