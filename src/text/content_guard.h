#pragma once

/// Guard of what users and tools said: marks of a conversation in it stay text.
///
/// A character that no message has is put after the first character of every mark, and after a
/// text's end where that may begin one. The template passes it through; where it arrives, the
/// rendered text has a seam, across which the tokenizer reads no added token. The character itself
/// is taken out again, so the text is the template's.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "core/json.h"
#include "text/jinja/trace.h"

namespace slime::text {

class ContentGuard final {
 public:
  /// Guards messages of all roles but assistant, system and developer. Fails where the messages
  /// have all of the characters that it could use.
  static Expected<ContentGuard> make(const json::array& messages, const json::value& tools,
                                     std::span<const std::string> marks);

  const json::array& messages() const { return messages_; }

  /// Takes the character out of a rendered text, moves the places of `trace` with it, and returns
  /// the seams. Fails where the template escaped the character, or wrote it anew.
  Expected<std::vector<uint32_t>> take_out(std::string& text, jinja::Trace& trace) const;

 private:
  json::array messages_;
  std::string character_;  // UTF-8
  std::string escaped_;    // as JSON may spell it
};

}  // namespace slime::text
