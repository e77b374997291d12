#pragma once

/// The table of tool-call formats: the marks of each and the forms that a call takes between them.
///
/// One state machine (text/messages/call_machine.h) reads all of them; what differs stands here.
/// harmony, the form of gpt-oss, is made of messages and has a machine of its own.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "text/messages/call_syntax.h"
#include "text/messages/marks.h"

namespace slime::text {

/// What follows a call's opening mark where it is no JSON and no tag.
enum class CallHeader : uint8_t {
  kNone,
  kSeparated,  // name, separator mark, JSON arguments
  kLine,       // name up to a newline, separator or other mark, then parameters
  kBraced,     // "call:name{...}", Gemma 4
  kPython,     // name(key='value')
};

/// Ids that a format's own output or template asks for.
enum class CallIds : uint8_t {
  kOpenAi,   // "call_" and 24 hexadecimal digits
  kMistral,  // nine letters and digits
  kKimi,     // "functions.name:N"
};

struct CallFormat {
  std::string_view name;
  std::span<const Mark> marks;
  /// Tokens inside of marks that a vocabulary may flag special; the marks themselves are looked up
  /// too.
  std::span<const std::string_view> inner_tokens = {};
  CallHeader header = CallHeader::kNone;
  CallIds ids = CallIds::kOpenAi;
  /// JSON objects {"name": ..., "arguments": {...}}, or a list of them.
  bool reads_json = true;
  /// The output may begin with such an object, without a mark. One that lacks a name or arguments
  /// is an answer.
  bool reads_bare_json = false;
  /// A line may begin with a list of Python calls.
  bool reads_bare_python = false;
  /// The object's "id" is the call's; it comes last, so calls are given out when they are whole.
  bool has_id_in_object = false;
  /// One newline at each end of a parameter's value belongs to the form.
  bool has_newlines_around_values = false;
  bool is_harmony = false;
  /// How calls are written where a grammar forces them.
  CallSyntax written = {};
  /// The same for models whose vocabulary has no token for the separator: an older form.
  CallSyntax written_without_separator = {};
};

/// All formats that are read.
std::span<const CallFormat> call_formats();

/// The format that a name of SGLang's `--tool-call-parser`, or of vLLM's, stands for. Fails with
/// the names that there are; the formats of a few SGLang's names are not read.
Expected<const CallFormat*> find_call_format(std::string_view name);

/// Names that find_call_format() takes.
std::vector<std::string_view> call_format_names();

/// The format that a chat template writes calls in; nullptr when it writes none that is known.
const CallFormat* call_format_of_template(std::string_view chat_template);

}  // namespace slime::text
