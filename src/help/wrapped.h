#pragma once

/// Text in lines of a bounded width, broken between words.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slime::help {

/// Lines that end without blanks, the first behind what is there already (`column` of it), the others behind `indent`
/// blanks. A word longer than a line has one of its own.
std::string wrapped(std::string_view text, int width, int indent, int column = 0);

/// Two columns, such as options and their meanings: "  left   right", the right one wrapped. Where the terminal
/// is narrow, or the left part is long, the right part begins on a line of its own.
std::string in_columns(const std::vector<std::pair<std::string, std::string>>& rows, int width,
                       int widest_left = 30);

}  // namespace slime::help
