#pragma once

/// "Did you mean": the known name that a mistyped one stands for.

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace slime {

/// The name of the smallest edit distance to `name`, the first of equals. Nothing when none is
/// near: more than three letters off, or more than half of the word, is another word.
std::optional<std::string_view> nearest_name(std::string_view name,
                                             std::span<const std::string_view> known);

/// "; did you mean math?" behind a message about `name`; empty: none is near.
std::string did_you_mean(std::string_view name, std::span<const std::string_view> known);

}  // namespace slime
