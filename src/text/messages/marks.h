#pragma once

/// Marks of message formats: the spellings that structure a model's output, and what each one does.

#include <cstdint>
#include <string_view>

namespace slime::text {

enum class MarkRole : uint8_t {
  kThinkOpen,
  kThinkClose,
  kSectionOpen,  // around all calls
  kSectionClose,
  kCallOpen,  // around one call
  kCallClose,
  kTagOpen,    // "<function=", up to the name
  kTagClose,   // "</function>"
  kSeparator,  // between a call's header and its arguments
  kIdOpen,     // in front of a call's id, inside its header
  kKeyOpen,    // of a parameter: "<parameter=", "<arg_key>"
  kKeyClose,
  kValueOpen,
  kValueClose,
  kQuote,  // around strings
  kFence,  // around arguments
  // Of harmony, the form of gpt-oss.
  kMessageStart,
  kChannel,
  kConstrain,
  kMessageText,
  kMessageEnd,
};

struct Mark {
  std::string_view spelling;
  MarkRole role;
};

}  // namespace slime::text
