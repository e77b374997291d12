#pragma once

/// One engine request as an awaitable: co_await generate(engine, request) gives all of its tokens
/// at once.

#include <boost/asio/awaitable.hpp>

#include "engine/client.h"

namespace slime::rollout {

/// The updates of the request, merged into one with `finish` set. Resumes on the caller's executor.
boost::asio::awaitable<engine::GenerateUpdate> generate(engine::EngineClient& engine,
                                                        engine::GenerateRequest request);

/// Adds a later update of the same request to `all`.
void merge(engine::GenerateUpdate& all, engine::GenerateUpdate update);

}  // namespace slime::rollout
