#pragma once

/// Error of a chat template that gave no text.

#include <string>
#include <string_view>

namespace slime::text {

enum class TemplateErrorKind {
  kTemplate,   // the template called raise_exception: the messages are not what it accepts
  kUndefined,  // an operation on a name, field or element that does not exist
  kType,       // an expression that Python could not evaluate either
  kRefused,    // a wrong call: no messages, contradicting options
  kLimit,      // too many steps, too deep, too much text
};

/// The word used on the wire: "template", "undefined", "type", "refused", "limit".
std::string_view to_string(TemplateErrorKind kind);

struct TemplateError {
  TemplateErrorKind kind = TemplateErrorKind::kType;
  std::string message;
  int line = 0;  // of the template, from 1; 0 where no line is to blame
};

}  // namespace slime::text
