#pragma once

/// A sample while it grows: each engine call appends what it drew (spec sections 17.1 and 17.2).

#include <cstdint>

#include "core/sample.h"
#include "engine/client.h"
#include "rollout/response_rules.h"

namespace slime::rollout {

/// How many tokens may still be sampled for this sample. 0: it has reached a limit, or is beyond one
/// that was higher when its tokens were sampled; it keeps them all.
int64_t remaining_tokens(const Sample& sample, const ResponseRules& rules);

/// Appends what the engine made: tokens, log-probs, mask, top-p ids, version runs (of those that it
/// leaves out nothing is known), status. The text is the caller's.
void append_generated(Sample& sample, const engine::GenerateUpdate& generated);

/// Takes generated tokens back until the response has `length` of them: with their log-probs, mask,
/// version runs and top-p ids. The sample can be continued (kAborted) and has
/// neither reward nor failure. The text stays: the caller renders it anew.
void cut_response(Sample& sample, int64_t length);

}  // namespace slime::rollout
