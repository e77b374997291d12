#include "engine/state_pool.h"

#include "core/error.h"

namespace slime::engine {

StatePool::StatePool(int64_t num_states) : is_free_(static_cast<std::size_t>(num_states), 1) {
  for (int64_t state = num_states; state-- > 0;) free_.push_back(static_cast<StateId>(state));
}

std::optional<StateId> StatePool::allocate() {
  if (free_.empty()) return std::nullopt;
  const StateId state = free_.back();
  free_.pop_back();
  is_free_[static_cast<std::size_t>(state)] = 0;
  return state;
}

void StatePool::release(StateId state) {
  check(!is_free_[static_cast<std::size_t>(state)], "a state is released once");
  is_free_[static_cast<std::size_t>(state)] = 1;
  free_.push_back(state);
}

}  // namespace slime::engine
