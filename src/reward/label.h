#pragma once

/// The label of a row as the rules read it. A label that no response could be right by is an Error
/// that says so: of the row, not of a response.

#include <string>
#include <string_view>

#include "core/expected.h"
#include "core/json.h"

namespace slime::reward {

/// The text of a label that is a string with more than blanks, or a number. An Error begins with
/// `rule`: "f1: the label is missing".
Expected<std::string> label_text(const json::value& label, std::string_view rule);

/// The label as JSON, for messages: its first 80 characters.
std::string shown_label(const json::value& label);

}  // namespace slime::reward
