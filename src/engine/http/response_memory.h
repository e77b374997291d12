#pragma once

/// Bounds on the memory of unfinished answers, of each and of all together. A call can ask for
/// thousands of long samples with a hundred log-probs a token, and a client need not read what it
/// asked for; neither may cost the server its memory.
///
/// Bytes are estimates of what a token costs in the updates that wait for the connection, in the
/// answer's arrays and in its JSON.

#include <atomic>
#include <cstddef>
#include <optional>
#include <span>

#include "engine/client.h"

namespace slime::engine {

/// Bytes that a route holds until its answer is sent.
struct ResponseCost {
  std::size_t token;     // its id and text
  std::size_t log_prob;  // of a token, when it is returned
  std::size_t top;       // each of the best log-probs of a position
};

/// What all calls share. Any thread.
class ResponseMemory {
 public:
  ResponseMemory(std::size_t call_limit_bytes, std::size_t all_limit_bytes)
      : call_limit_bytes_(call_limit_bytes), all_limit_bytes_(all_limit_bytes) {}

  std::size_t num_bytes() const { return num_bytes_.load(); }

 private:
  friend class ResponseShare;
  const std::size_t call_limit_bytes_;
  const std::size_t all_limit_bytes_;
  std::atomic<std::size_t> num_bytes_{0};
};

/// What one call holds; given back when the call ends. `memory` outlives it.
class ResponseShare {
 public:
  explicit ResponseShare(ResponseMemory& memory) : memory_(memory) {}
  ~ResponseShare() { shrink(num_bytes_); }
  ResponseShare(const ResponseShare&) = delete;
  ResponseShare& operator=(const ResponseShare&) = delete;

  /// Why the call has to end, when there is no room for `bytes` more; nothing is taken then.
  std::optional<FinishReason> grow(std::size_t bytes);
  void shrink(std::size_t bytes);

 private:
  ResponseMemory& memory_;
  std::size_t num_bytes_ = 0;
};

/// Whether a call ended for want of room here and not in the engine.
inline bool is_overrun(const GenerateUpdate& update) {
  return update.finish && (update.finish->cause == FinishReason::Cause::kResponseTooLarge ||
                           update.finish->cause == FinishReason::Cause::kResponsesFull);
}

/// What an update adds to the answer.
std::size_t kept_bytes(const GenerateUpdate& update, const ResponseCost& cost);
/// What it takes on its way to the connection.
std::size_t queued_bytes(const GenerateUpdate& update);
/// What the prompts of a call take while it runs.
std::size_t prompt_bytes(std::span<const GenerateRequest> requests);

}  // namespace slime::engine
