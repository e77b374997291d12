#pragma once

/// Pool of per-request layer states (linear attention): hands out places of a StateCache. A state
/// is held by one running request, or by the prefix tree as a snapshot. No tensors here. Owned by
/// the engine's thread.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace slime::engine {

using StateId = int32_t;

class StatePool {
 public:
  explicit StatePool(int64_t num_states);

  /// Its contents are what somebody left there.
  std::optional<StateId> allocate();
  void release(StateId state);

  int64_t num_states() const { return static_cast<int64_t>(is_free_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }

 private:
  std::vector<StateId> free_;  // last one is handed out next
  std::vector<uint8_t> is_free_;
};

/// Copies a state, after the steps launched so far.
using CopyStateFn = std::function<void(StateId from, StateId to)>;

}  // namespace slime::engine
