#pragma once

/// JSON: Boost.JSON under a short name, with the limits we read foreign text by.
///
/// At gates (files, wire) JSON is parsed into our own types; only what is JSON by nature travels as
/// such: chat messages, tools, a sample's metadata.
///
/// Numbers are what the text says (docs/decisions/0094-exact-numbers.md): fractions are the nearest
/// double, whole numbers are exact however long. One that needs more than 64 bits is no kind of
/// json::value; it is an object that only parse_json() can make and json_text() writes as digits.

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

/// The same, nothing for text that is no JSON.
std::optional<json::value> try_parse_json(std::string_view text);

/// One line of JSON. Floats are written as Python's repr() does (1.0, 1e+16), so that a float stays
/// one for the next reader; an infinite one as 1e999, which readers take for infinity.
std::string json_text(const json::value& value);
std::string json_text(const json::object& object);
std::string json_text(const json::array& array);
std::string json_text(const json::string& text);
std::string json_text(std::string_view text);
void append_json_text(const json::value& value, std::string& out);

/// The digits, with a sign where negative, of a whole number of more than 64 bits; null for all
/// else.
const json::string* big_integer_digits(const json::value& value);

/// As Python prints a float: "1.0", "1e-05", "inf".
std::string python_float_text(double number);

/// The first key, unescaped, that an object of `text` has twice; nothing when there is none or the
/// text is no JSON. Two readers of such an object may see two different values, so whoever takes
/// orders from strangers refuses it.
std::optional<std::string> find_duplicate_key(std::string_view text);

/// How many keys all objects of `text` have together, counted up to one more than `limit`; what
/// follows a mistake in the text is not looked at.
std::size_t count_keys(std::string_view text, std::size_t limit);

/// Reads a whole JSON file. Throws ConfigError when it is missing, no regular file, unreadable, too large
/// or malformed.
json::value read_json_file(const std::filesystem::path& path,
                           std::size_t limit_bytes = std::size_t{256} << 20);

/// Pretty form with two spaces of indent and a final newline, as Hugging Face writes configuration
/// files.
std::string to_pretty_json(const json::value& value);

}  // namespace slime
