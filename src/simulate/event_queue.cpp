#include "simulate/event_queue.h"

#include <algorithm>

#include "core/error.h"

namespace slime::simulate {

void EventQueue::add(Clock::TimePoint when, Event event) {
  events_.emplace(std::pair(std::max(when, now()), num_asked_++), std::move(event));
}

void EventQueue::after(double seconds, std::function<void()> call) {
  add(now() + to_duration(seconds), {.call = std::move(call)});
}

void EventQueue::at(Clock::TimePoint when, std::function<void()> call) {
  add(when, {.call = std::move(call), .is_of_rollout = true});
}

void EventQueue::attach(std::function<bool()> run_handlers) {
  run_handlers_ = std::move(run_handlers);
}

void EventQueue::detach() {
  run_handlers_ = nullptr;
  std::erase_if(events_, [](const auto& entry) { return entry.second.is_of_rollout; });
}

void EventQueue::happen() {
  if (before_event_) before_event_();
  ++num_events_;
  const auto next = events_.begin();
  clock_.set(next->first.first);
  const std::function<void()> call = std::move(next->second.call);
  events_.erase(next);
  call();
}

bool EventQueue::run_handlers() {
  ++num_turns_;
  return run_handlers_ && run_handlers_();
}

bool EventQueue::advance() {
  if (num_turns_ > most_turns_) return false;
  if (run_handlers()) return true;
  if (events_.empty()) return false;
  happen();
  return true;
}

void EventQueue::pass(double seconds) {
  const Clock::TimePoint end = now() + to_duration(seconds);
  for (;;) {
    check(num_turns_ <= most_turns_, "a simulated run ends");
    if (run_handlers()) continue;
    if (events_.empty() || events_.begin()->first.first > end) break;
    happen();
  }
  clock_.set(end);
}

}  // namespace slime::simulate
