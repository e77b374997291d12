#include "engine/http/protocol_answer.h"

#include <iterator>
#include <utility>

#include "engine/http/abort_status.h"

namespace slime::engine {
namespace {

void append_events(std::vector<ServerEvent>& events, std::vector<ServerEvent> more) {
  events.insert(events.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
}

}  // namespace

void MessageAnswer::add(std::size_t /*index*/, const GenerateUpdate& update) {
  append_events(events_, events_of(update));
}

std::vector<std::size_t> MessageAnswer::take_stops() {
  if (is_stopped_ || !choice().wants_stop() || choice().finish()) return {};
  is_stopped_ = true;
  return {0};
}

const FinishReason* MessageAnswer::failure() const {
  const auto& finish = choice().finish();
  return is_http_error(finish) ? &*finish : nullptr;
}

std::vector<ServerEvent> MessageAnswer::next() { return std::exchange(events_, {}); }

std::vector<ServerEvent> MessageAnswer::fail(const ApiError& error) {
  std::vector<ServerEvent> events = next();
  append_events(events, events_of_failure(error));
  return events;
}

}  // namespace slime::engine
