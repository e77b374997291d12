#pragma once

/// Routes of SGLang's router on a server that has none before it: who looks for the workers behind an
/// address, as functions of the original do to abort what runs, finds the server itself. For several
/// servers there is `slime router` (docs/router.md).

#include <vector>

#include "engine/http/api_state.h"
#include "net/http_exchange.h"

namespace slime::engine {

/// `state` outlives the server that uses them.
void add_router_routes(ApiState& state, std::vector<net::HttpRoute>& routes);

}  // namespace slime::engine
