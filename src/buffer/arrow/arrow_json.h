#pragma once

/// JSON text of one value of an Arrow column. Seen by libslime_arrow.so alone.

#include <arrow/array.h>
#include <arrow/status.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace slime::buffer {

/// UTF-8 in quotes.
void append_json_string(std::string& out, std::string_view text);

/// Bytes that are no text are {"base64": ...}; dates and decimals are texts as Arrow prints them.
arrow::Status append_json_value(std::string& out, const arrow::Array& array, int64_t row);

}  // namespace slime::buffer
