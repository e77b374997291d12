#pragma once

/// The label of a row as the rules read it. A label that no response could be right by is an Error
/// that says so: of the row, not of a response.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "core/json.h"

namespace slime::reward {

/// The text of a label that is a string with more than blanks, or a number. An Error begins with
/// `rule`: "f1: the label is missing".
Expected<std::string> label_text(const json::value& label, std::string_view rule);

/// The right answers that a label holds, at least one. Besides what label_text reads, as published
/// data sets have them:
///   ["4", "four"]             a list: each is right
///   "[\"4\"]", "['4' 'four']" the same as text: JSON, or as Python and numpy print it
Expected<std::vector<std::string>> right_answers(const json::value& label, std::string_view rule);

/// The final answer of a worked solution in the form of GSM8K: "48/2 = 24 ...\n#### 72" -> "72".
/// Other texts as they are.
std::string_view final_answer(std::string_view text);

/// The highest of the scores that `score` gives by each of the label's answers: a number, or a
/// record with a "score". Fails when the label has none, or `score` fails by each of them.
Expected<json::value> best_score(
    const json::value& label, std::string_view rule,
    const std::function<Expected<json::value>(std::string_view)>& score);

/// The label as JSON, for messages: its first 80 characters.
std::string shown_label(const json::value& label);

}  // namespace slime::reward
