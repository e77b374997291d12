#include "engine/state_cache.h"

#include <ATen/ATen.h>

#include <cstring>

#include "engine/memory_on_demand.h"

namespace slime::engine {

StateCache::StateCache(std::span<const model::BlockNeeds> blocks, int64_t num_states) {
  for (const model::BlockNeeds& block : blocks) {
    bytes_.push_back(block.cache.state_bytes);
    of_layer_.push_back(zeros_on_demand(num_states, block.cache.state_bytes, "states of requests"));
  }
}

float* StateCache::state(int layer, StateId state) const {
  const auto index = static_cast<std::size_t>(layer);
  auto* bytes = static_cast<std::byte*>(of_layer_[index].data_ptr());
  return reinterpret_cast<float*>(bytes + state * bytes_[index]);
}

void StateCache::copy(StateId from, StateId to) {
  for (std::size_t layer = 0; layer < bytes_.size(); ++layer) {
    const int index = static_cast<int>(layer);
    if (bytes_[layer] > 0)
      std::memcpy(state(index, to), state(index, from), static_cast<std::size_t>(bytes_[layer]));
  }
}

void StateCache::clear(StateId id) {
  for (std::size_t layer = 0; layer < bytes_.size(); ++layer) {
    if (bytes_[layer] > 0)
      std::memset(state(static_cast<int>(layer), id), 0, static_cast<std::size_t>(bytes_[layer]));
  }
}

void StateCache::release_memory() {
  for (const Tensor& bytes : of_layer_) give_back_memory(bytes);
}

}  // namespace slime::engine
