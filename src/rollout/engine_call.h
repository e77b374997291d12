#pragma once

/// One engine request as an awaitable: co_await generate(engine, request) gives all of its tokens
/// at once.

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>

#include "engine/client.h"

namespace slime::rollout {

/// Tokens drawn so far, after each update but the last. Called on the engine's thread: do little,
/// never block. May be empty.
using OnDrawn = std::function<void(int64_t num_tokens)>;

/// What the engine calls the request. Called on the caller's thread, before it waits.
using OnSubmitted = std::function<void(engine::RequestHandle)>;

/// The updates of the request, merged into one with `finish` set. Resumes on the caller's executor.
boost::asio::awaitable<engine::GenerateUpdate> generate(engine::EngineClient& engine,
                                                        engine::GenerateRequest request,
                                                        OnSubmitted on_submitted, OnDrawn on_drawn);

/// Adds a later update of the same request to `all`.
void merge(engine::GenerateUpdate& all, engine::GenerateUpdate update);

}  // namespace slime::rollout
