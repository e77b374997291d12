#pragma once

/// The answer in the last \boxed{...} of a response.

#include <optional>
#include <string_view>

namespace slime::reward {

/// From the last `\boxed` (or, without one, the last `\fbox`) to the brace that balances:
/// "\boxed{\frac{1}{2}}". Nothing when there is none or it never balances.
std::optional<std::string_view> last_boxed_expression(std::string_view text);

/// The content of last_boxed_expression: nothing for \fbox{7} and for \boxed 5. Only for texts with
/// `\boxed`, see extract_answer.
std::optional<std::string_view> boxed_content(std::string_view text);

/// The answer of a response: the content of its last box (spec 16.2 "Extraction").
std::optional<std::string_view> extract_answer(std::string_view response);

/// The stricter search of the dapo reward: the last `\boxed{` to the brace that closes it.
std::optional<std::string_view> last_boxed_with_braces(std::string_view text);

}  // namespace slime::reward
