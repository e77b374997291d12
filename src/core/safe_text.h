#pragma once

/// Foreign text for a terminal: of models, clients, files and users' functions, with control characters escaped.
///
///   safe_text("a\033[2Jb")   "a\x1b[2Jb", in letters: nothing clears the screen

#include <string>
#include <string_view>

namespace slime {

/// Line feeds and tabs stay. Other control characters (C0, DEL, and U+0080 to U+009F, which terminals
/// obey as they obey an escape) and bytes that are no UTF-8 become "\x9b".
std::string safe_text(std::string_view text);

/// JSON text with DEL and U+0080 to U+009F as "\u009b", which says the same: JSON demands the escape
/// of smaller control characters alone.
std::string safe_json(std::string json);

}  // namespace slime
