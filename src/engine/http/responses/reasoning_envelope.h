#pragma once

/// Reasoning text in the form of `encrypted_content`, which clients keep and send back unread.
///
/// The text is packed, not encrypted: the server keeps no state and has nothing to hide from the
/// client that it answered. It is not compressed either, so what comes back cannot grow.

#include <optional>
#include <string>
#include <string_view>

namespace slime::engine {

std::string pack_reasoning(std::string_view text);

/// Whether pack_reasoning() made it, as far as its beginning tells. What another server made is of
/// no use here.
bool is_packed_reasoning(std::string_view content);

/// Nothing for content that is_packed_reasoning() does not know, or that was changed.
std::optional<std::string> unpack_reasoning(std::string_view content);

}  // namespace slime::engine
