#pragma once

/// Causes of the engine as numbers of HTTP: the one place where they meet.

#include "engine/client.h"

namespace slime::engine {

/// 499 is nginx's number for a client that closed its request.
inline int http_status_of(FinishReason::Cause cause) {
  switch (cause) {
    case FinishReason::Cause::kRequested:
      return 499;
    case FinishReason::Cause::kBadRequest:
    case FinishReason::Cause::kResponseTooLarge:
      return 400;
    case FinishReason::Cause::kQueueFull:  // 503 is for what is broken: routers leave it alone then
    case FinishReason::Cause::kResponsesFull:
      return 429;
    case FinishReason::Cause::kEngineLost:
    case FinishReason::Cause::kShuttingDown:
      return 503;
    case FinishReason::Cause::kOutOfMemory:
      return 507;
    case FinishReason::Cause::kEngineFailed:
      break;
  }
  return 500;
}

/// A request that the engine refused or lost is an HTTP error; one that was aborted on demand is an
/// answer.
inline bool is_http_error(const std::optional<FinishReason>& finish) {
  return finish && finish->kind == FinishReason::Kind::kAbort &&
         finish->cause != FinishReason::Cause::kRequested;
}

}  // namespace slime::engine
