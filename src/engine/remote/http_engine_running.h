#pragma once

/// A request of a caller of engine/remote/http_engine.h: what is left of it, and the part of it that runs.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/remote/http_engine.h"
#include "net/http_upstream.h"

namespace slime::engine {

/// A request of a caller, on its way through parts: calls of /generate, of which an update of the
/// weights ends one and the next goes on from its tokens.
struct HttpEngine::Running {
  RequestHandle handle{};
  GenerateRequest request;  // what is left: the input has the tokens that were told
  OnUpdate on_update;
  std::chrono::steady_clock::time_point submitted = std::chrono::steady_clock::now();
  int64_t prompt_tokens = 0;  // of the first part
  int64_t cached_tokens = 0;
  int num_parts = 0;
  int num_failures = 0;     // in a row
  bool is_aborted = false;  // by the caller
  bool has_ended = false;
  std::string part_rid;                         // in the server
  std::shared_ptr<net::HttpUpstream> upstream;  // of the part that runs; null: none does
  std::string problem;                          // of the last part that failed
};

}  // namespace slime::engine
