#pragma once

/// LaTeX macros without arguments and the text they stand for: `\alpha`, `\leq`, `\sin`.

#include <optional>
#include <string_view>

namespace slime::reward {

/// UTF-8 of the symbol; nothing for a name that is not in the table. `name` is without the
/// backslash.
std::optional<std::string_view> latex_symbol(std::string_view name);

}  // namespace slime::reward
