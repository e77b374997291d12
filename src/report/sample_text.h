#pragma once

/// Samples for people: prompts, responses and rewards in plain lines, without token ids and log-probs.
///
///   prompt 12: 2 samples, mean reward 0.5, label "cat"
///     Say something about a cat.
///
///   sample 24: reward 1, completed, 5 tokens
///     A cat.
///
///   sample 25: reward 0, truncated, 32 tokens
///     The dog and

#include <string>
#include <string_view>

#include "core/sample.h"

namespace slime::report {

/// Texts stand behind four spaces; all of it is safe to print (core/safe_text.h). `reward_key`: the number
/// of a reward record that trains; empty: its "score".
std::string plain_text(const Group& group, const std::string& reward_key);

}  // namespace slime::report
