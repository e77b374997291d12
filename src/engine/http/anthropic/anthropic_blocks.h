#pragma once

/// Content blocks of Anthropic's protocol whose text is a part of the prompt: text, documents made
/// of text, search results.

#include <optional>
#include <string>
#include <string_view>

#include "core/field_reader.h"
#include "core/json.h"

namespace slime::engine {

/// The type of a block; "text" where it has none.
std::string block_type(const FieldReader& block);

/// The text of a block. A problem of the reader where it has none, as an image.
std::optional<std::string> block_text(const FieldReader& block);

/// A field that is a text or a list of such blocks, as the content of a chat message: a text, or a
/// list of parts; null where it is absent.
json::value read_block_content(const FieldReader& fields, std::string_view name);

}  // namespace slime::engine
