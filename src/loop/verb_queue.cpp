#include "loop/verb_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace slime::loop {

void VerbQueue::require_known(int64_t number) const {
  const bool is_open = (under_way_ && under_way_->number == number) || answers_.contains(number) ||
                       std::ranges::find(waiting_, number, &Verb::number) != waiting_.end();
  if (is_open) return;
  throw ConfigError(
      number >= 1 && number <= num_verbs_
          ? fmt::format("request_id {}: its answer was given long ago, and is forgotten", number)
          : fmt::format("request_id {}: no verb has it", number));
}

int64_t VerbQueue::add(std::string name, json::object arguments) {
  std::unique_lock lock(mutex_);
  if (waiting_.size() >= kMostWaiting) {
    throw ConfigError(
        fmt::format("{}: {} verbs wait already; await some of them first", name, waiting_.size()));
  }
  const int64_t number = ++num_verbs_;
  if (ended_) {
    put_answer(lock, number, *ended_);
    return number;
  }
  waiting_.push_back(
      {.number = number, .name = std::move(name), .arguments = std::move(arguments)});
  changed_.notify_all();
  return number;
}

bool VerbQueue::has(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  return (under_way_ && under_way_->name == name) ||
         std::ranges::find(waiting_, name, &Verb::name) != waiting_.end();
}

void VerbQueue::call_when_answered(int64_t number, std::function<void()> call) {
  std::unique_lock lock(mutex_);
  require_known(number);
  if (answers_.contains(number)) {
    lock.unlock();
    return call();
  }
  calls_[number] = std::move(call);
  const auto waiting = std::ranges::find(waiting_, number, &Verb::number);
  if (waiting == waiting_.end()) return;
  waiting->is_awaited = true;
  changed_.notify_all();
}

std::optional<VerbAnswer> VerbQueue::answer_of(int64_t number) const {
  const std::lock_guard lock(mutex_);
  require_known(number);
  const auto answer = answers_.find(number);
  return answer == answers_.end() ? std::nullopt : std::optional(answer->second);
}

std::optional<Verb> VerbQueue::next(const Choose& choose, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  std::optional<std::size_t> chosen;
  changed_.wait_for(lock, limit, [&] {
    chosen = choose(waiting_);
    return chosen.has_value();
  });
  if (!chosen) return std::nullopt;
  const auto at = waiting_.begin() + static_cast<std::ptrdiff_t>(*chosen);
  under_way_ = std::move(*at);
  waiting_.erase(at);
  return under_way_;
}

void VerbQueue::put_answer(std::unique_lock<std::mutex>& lock, int64_t number, VerbAnswer answer) {
  answers_[number] = std::move(answer);
  while (answers_.size() > kKeptAnswers) answers_.erase(answers_.begin());
  std::function<void()> call;
  if (const auto waits = calls_.find(number); waits != calls_.end()) {
    call = std::move(waits->second);
    calls_.erase(waits);
  }
  if (!call) return;
  lock.unlock();
  call();
  lock.lock();
}

void VerbQueue::answer(int64_t number, VerbAnswer answer) {
  std::unique_lock lock(mutex_);
  check(under_way_ && under_way_->number == number, "the verb that is answered is under way");
  under_way_.reset();
  put_answer(lock, number, std::move(answer));
}

void VerbQueue::end(VerbError error) {
  std::unique_lock lock(mutex_);
  ended_ = error;
  std::vector<int64_t> open;
  if (under_way_) open.push_back(under_way_->number);
  for (const Verb& verb : waiting_) open.push_back(verb.number);
  under_way_.reset();
  waiting_.clear();
  for (const int64_t number : open) put_answer(lock, number, error);
}

}  // namespace slime::loop
