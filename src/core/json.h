#pragma once

/// JSON: Boost.JSON under a short name, with the limits we read foreign text by.
///
/// At gates (files, wire) JSON is parsed into our own types; only what is JSON by nature travels as
/// such: chat messages, tools, a sample's metadata.

#include <boost/json.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace slime {

namespace json = boost::json;

/// Parses one JSON value. Depth is limited to 64; bad UTF-8 and trailing text are errors. Throws
/// ConfigError that starts with `where` ("data.jsonl, line 7") and names the byte.
json::value parse_json(std::string_view text, std::string_view where);

/// The first key, unescaped, that an object of `text` has twice; nothing when there is none or the
/// text is no JSON. Two readers of such an object may see two different values, so whoever takes
/// orders from strangers refuses it.
std::optional<std::string> find_duplicate_key(std::string_view text);

/// Reads a whole JSON file. Throws ConfigError when it is missing, unreadable, too large or
/// malformed.
json::value read_json_file(const std::filesystem::path& path,
                           std::size_t limit_bytes = std::size_t{256} << 20);

/// Pretty form with two spaces of indent and a final newline, as Hugging Face writes configuration
/// files.
std::string to_pretty_json(const json::value& value);

}  // namespace slime
