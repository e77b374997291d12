#pragma once

/// The memory of requests' states: for each layer that keeps one an array, one place for each number of
/// a StatePool of the same size (kernels/cpu/delta_step.h says how a state lies there).

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "engine/state_pool.h"
#include "model/costs.h"

namespace slime::engine {

class StateCache {
 public:
  /// Memory is touched only when it is written.
  StateCache(std::span<const model::BlockNeeds> blocks, int64_t num_states);

  float* state(int layer, StateId state) const;

  void copy(StateId from, StateId to);
  /// As before the first token.
  void clear(StateId state);

  /// Gives the memory back to the system, and the contents up.
  void release_memory();

 private:
  std::vector<int64_t> bytes_;    // of a state, per layer; 0 where a layer keeps none
  std::vector<Tensor> of_layer_;  // bytes, flat
};

}  // namespace slime::engine
