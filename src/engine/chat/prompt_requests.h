#pragma once

/// Prompts times n to requests of the engine, for the protocols that have `n`.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/client.h"
#include "engine/http/served_model.h"

namespace slime::engine {

/// Request i is copy i % n of prompt i / n. `shared`: what all have; a seed goes up by one with each
/// copy, a rid gets a number where there are several requests, and one is made where it is empty.
/// Without `max_tokens` responses may fill the context. Throws ConfigError with every problem,
/// context_length_exceeded where a prompt leaves no room.
std::vector<GenerateRequest> make_requests(const ServedModel& model, const GenerateRequest& shared,
                                           const std::vector<std::vector<TokenId>>& prompts,
                                           std::size_t n, std::optional<int64_t> max_tokens);

}  // namespace slime::engine
