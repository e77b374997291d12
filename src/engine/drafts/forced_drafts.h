#pragma once

/// Drafts that are right with a given chance, whatever the model draws (DraftSettings::forced_acceptance): speed can
/// then be measured on made-up weights, whose responses have no texts to draft from.

#include <cstdint>
#include <vector>

#include "engine/drafts/draft.h"
#include "engine/request.h"

namespace slime::engine {

/// Replaces `out` by `count` drafts, tokens that the request has already. Each is foretold to be right with chance
/// `acceptance` where those before it are.
void propose_forced(const Request& request, int64_t count, double acceptance,
                    std::vector<Draft>& out);

/// Whether a draft of the token at `position` is right: by a random number of the request and the position alone.
bool is_forced_right(const Request& request, int64_t position, double acceptance);

}  // namespace slime::engine
