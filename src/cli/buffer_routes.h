#pragma once

/// The HTTP routes of `slime buffer`; docs/buffer.md has their fields.

#include <vector>

#include "buffer/rollout_store.h"
#include "cli/buffer_generator.h"
#include "net/http_exchange.h"

namespace slime::cli {

/// Both outlive the server. Routes that draw or take are of the class inference, /start_rollout is
/// control, /health and /buffer/status are probes.
std::vector<net::HttpRoute> buffer_routes(buffer::RolloutStore& store, BufferGenerator& generator);

}  // namespace slime::cli
