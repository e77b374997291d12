#pragma once

/// The part of a response that text rules grade: without the end marks of the model's turn.
///
/// A response that ended by itself carries the token that ended it (unless
/// --rollout-skip-special-tokens drops it): "ok<|im_end|>". That token is no part of the answer.

#include <span>
#include <string>
#include <string_view>

namespace slime::reward {

/// `response` without the end marks at its end, and the white space after each of them. A mark is
/// one of `marks` (the model's own: its eos_token and stop tokens), any <|name|>, or one of the
/// spellings that models without such names use: </s>, <eos>, <end_of_turn>, ... A response without
/// marks stays as it is, white space included.
std::string_view graded_text(std::string_view response, std::span<const std::string> marks = {});

}  // namespace slime::reward
