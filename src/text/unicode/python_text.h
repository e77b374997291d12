#pragma once

/// Python's str on UTF-8: code points, white space, case, splitting. Chat templates and the rules
/// of rewards were written for Python; the same text has to be cut and compared in the same way
/// here.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slime::text::python {

/// The code point at byte `at`, which moves behind it. A byte that is no UTF-8 counts as one point
/// of its value.
char32_t next_point(std::string_view text, std::size_t& at);
/// Bytes of the code point at byte `at`.
std::size_t point_bytes(std::string_view text, std::size_t at);
/// Whether \w matches the point: str.isalnum, or an underscore.
bool is_word_point(char32_t point);
void append_point(char32_t point, std::string& out);
std::size_t count_points(std::string_view text);
/// The byte offset of code point `index`, at most text.size().
std::size_t byte_offset(std::string_view text, std::size_t index);
/// Each code point as a string of its own.
std::vector<std::string_view> split_points(std::string_view text);

bool is_space(char32_t point);      // str.isspace: what strip() removes
bool is_printable(char32_t point);  // str.isprintable: what repr() leaves as it is
bool is_alphabetic(char32_t point);
bool is_numeric(char32_t point);
bool is_upper(char32_t point);
bool is_lower(char32_t point);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// First letter of each word in title case, the others in lower case (str.title).
std::string to_title(std::string_view text);
std::string capitalized(std::string_view text);
std::string with_swapped_case(std::string_view text);

/// `characters` absent: white space.
std::string_view stripped_left(std::string_view text,
                               const std::optional<std::string>& characters = {});
std::string_view stripped_right(std::string_view text,
                                const std::optional<std::string>& characters = {});
std::string_view stripped(std::string_view text, const std::optional<std::string>& characters = {});

/// str.splitlines.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);
/// str.split and str.rsplit; no separator: runs of white space. `limit` < 0: no limit.
std::vector<std::string_view> split(std::string_view text,
                                    const std::optional<std::string>& separator = {},
                                    int64_t limit = -1);
std::vector<std::string_view> split_from_right(std::string_view text,
                                               const std::optional<std::string>& separator,
                                               int64_t limit);
/// Where `part` begins first, or last, or npos. In linear time whatever both say: std::string's own
/// search may take the product of both sizes.
std::size_t find_part(std::string_view text, std::string_view part);
std::size_t find_last_part(std::string_view text, std::string_view part);
/// How often `part` occurs without overlap; an empty part occurs between all points.
std::size_t count_occurrences(std::string_view text, std::string_view part);
/// str.replace. `limit` < 0: all. The caller accounts for the size of the result.
std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     int64_t limit = -1);

}  // namespace slime::text::python
