#pragma once

#include <vector>

#include "engine/client.h"

namespace slime::bench {

/// Submits all requests at once and waits for them; their results in the same order, each as one
/// update. Throws ConfigError with the engine's words when it aborted one.
std::vector<engine::GenerateUpdate> generate_all(engine::EngineClient& engine,
                                                 std::vector<engine::GenerateRequest> requests);

}  // namespace slime::bench
