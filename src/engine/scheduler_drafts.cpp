// Room for drafts in a step that is planned.

#include <algorithm>

#include "engine/scheduler.h"

namespace slime::engine {

int64_t Scheduler::most_drafts(const Chunk& chunk, int64_t wanted) const {
  return most_drafts(*chunk.request, wanted);
}

int64_t Scheduler::most_drafts(const Request& request, int64_t wanted) const {
  const auto num_tokens = static_cast<int64_t>(request.tokens.size());
  int64_t room = std::min(wanted, request.max_tokens - num_tokens - 1);
  const RotarySwitch& at = config_.rotary_switch;
  if (at.length > 0 && request.rotary_offset == 0) room = std::min(room, at.length - num_tokens);
  return std::max<int64_t>(room, 0);
}

int64_t Scheduler::room_for_drafts(const Chunk& chunk, int64_t wanted) {
  Request& request = *chunk.request;
  int64_t room = most_drafts(chunk, wanted);
  const int64_t computed = request.num_computed + chunk.num_tokens;
  if (room > 0 && !ensure_pages(request, computed + room))
    room = static_cast<int64_t>(request.pages.size()) * config_.page_tokens - computed;
  return std::max<int64_t>(room, 0);
}

}  // namespace slime::engine
