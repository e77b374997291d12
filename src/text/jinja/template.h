#pragma once

/// A Jinja2 template, parsed once and rendered any number of times, from any number of threads.
///
///   jinja::Template::parse("{% for m in messages %}{{ m.role }} {% endfor
///   %}").render({{"messages", ...}}, {});
///
/// The dialect is the one chat templates are written for: trim_blocks, lstrip_blocks, loop
/// controls, {% generation %}, no auto-escaping, a sandbox without mutation, tojson as Python's
/// json.dumps, Undefined that only prints.

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/expected.h"
#include "text/jinja/budget.h"
#include "text/jinja/lexer.h"
#include "text/jinja/template_error.h"
#include "text/jinja/trace.h"
#include "text/jinja/value.h"

namespace slime::text::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

struct RenderOptions {
  Limits limits;
  std::chrono::local_seconds now{};  // what strftime_now sees
  Trace* trace = nullptr;            // filled while rendering; may be absent
};

class Template {
 public:
  /// Throws SyntaxError with the line.
  static Template parse(std::string_view source);

  /// Every name that an expression of the template looks up, on any path through it: variables, and
  /// those that it sets itself.
  const std::set<std::string, std::less<>>& names() const;

  Expected<std::string, TemplateError> render(const Variables& variables,
                                              const RenderOptions& options) const;

 private:
  struct Tree;
  explicit Template(std::shared_ptr<const Tree> tree) : tree_(std::move(tree)) {}
  std::shared_ptr<const Tree> tree_;
};

}  // namespace slime::text::jinja
