#pragma once

/// One engine request as an awaitable: co_await generate(engine, request) gives all of its tokens
/// at once.

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/client.h"

namespace slime::rollout {

/// Tokens sampled so far, after each update but the last. Called on the engine's thread: do little,
/// never block. May be empty.
using OnSampled = std::function<void(int64_t num_tokens)>;

/// What the engine calls the request. Called on the caller's thread, before it waits.
using OnSubmitted = std::function<void(engine::RequestHandle)>;

/// What a request has sampled: the engine's thread adds to it, any thread may look.
class SampledSoFar {
 public:
  /// Returns how many new tokens there are now. Nothing: it had ended before, and its client tells
  /// the end twice.
  std::optional<int64_t> add(engine::GenerateUpdate update);
  engine::GenerateUpdate copy() const;
  /// When nothing is added any more.
  engine::GenerateUpdate take();

 private:
  mutable std::mutex mutex_;
  engine::GenerateUpdate all_;  // guarded by mutex_
  bool has_ended_ = false;      // guarded by mutex_
};

/// The updates of the request, merged into one with `finish` set. Resumes on the caller's executor.
/// Until then `sampled`, which is empty and not null, has what came so far.
boost::asio::awaitable<engine::GenerateUpdate> generate(engine::EngineClient& engine,
                                                        engine::GenerateRequest request,
                                                        std::shared_ptr<SampledSoFar> sampled,
                                                        OnSubmitted on_submitted,
                                                        OnSampled on_sampled);

}  // namespace slime::rollout
