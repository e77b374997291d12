#pragma once

/// Messages of one role that follow one another, as one unit: what turns are recognised by.
///
/// A client sends a turn back in words of its own: without its thoughts, its arguments written anew, its
/// text and its call as two messages. A unit has what stays the same.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "engine/sessions/text_key.h"

namespace slime::engine {

struct MessageUnit {
  std::size_t first = 0, end = 0;  // its messages are [first, end)
  bool is_assistant = false;
  bool has_text = false;
  std::size_t num_calls = 0;
  TextKey whole;     // role, text, calls, and members that nobody knows
  TextKey calls;     // names and arguments
  TextKey words;     // the text without thoughts, one space between words
  TextKey thoughts;  // equal to TextKey() where there are none
  std::vector<std::string> call_ids;
};

/// Roles that stay apart though they follow one another. Results of tools always do.
enum class Joining { kAllRoles, kAllButAssistants };

/// `messages`: of a chat request, well-formed.
std::vector<MessageUnit> units_of(const json::array& messages, Joining joining);

/// The messages of a unit as one, in the form of a chat request.
json::object joined_message(const json::array& messages, const MessageUnit& unit);

/// Words of a text: MessageUnit::words.
TextKey words_of(std::string_view text);

/// MessageUnit::thoughts.
TextKey thoughts_of(std::string_view text);

}  // namespace slime::engine
