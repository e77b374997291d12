#include "tinker/futures.h"

#include <fmt/format.h>

#include <utility>

namespace slime::tinker {

std::string Futures::open() {
  const std::lock_guard lock(mutex_);
  std::string id = fmt::format("req-{}", ++num_opened_);
  futures_[id];
  return id;
}

void Futures::answer(const std::string& id, const json::object& answer) {
  std::string text = json_text(answer);
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    Future& future = known(id);
    if (future.answer) return;
    bytes_ += text.size();
    future.answer = std::move(text);
    call = std::move(future.call);
    answered_.push_back(id);
    while (answered_.size() > 1 && (answered_.size() > kKeptAnswers || bytes_ > kKeptBytes)) {
      const auto oldest = futures_.find(answered_.front());
      bytes_ -= oldest->second.answer->size();
      futures_.erase(oldest);
      answered_.pop_front();
    }
  }
  if (call) call();
}

void Futures::fail(const std::string& id, const std::string& message, Blame blame) {
  answer(id, {{"error", message}, {"category", blame == Blame::kUser ? "user" : "server"}});
}

void Futures::call_when_answered(const std::string& id, std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    Future& future = known(id);
    if (!future.answer) {
      future.call = std::move(call);
      return;
    }
  }
  call();
}

std::optional<std::string> Futures::answer_of(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return known(id).answer;
}

Futures::Future& Futures::known(const std::string& id) {
  const auto found = futures_.find(id);
  if (found == futures_.end())
    throw UnknownFuture(
        fmt::format("request_id {}: there is none, or its answer was given long ago", id));
  return found->second;
}

const Futures::Future& Futures::known(const std::string& id) const {
  return const_cast<Futures*>(this)->known(id);
}

}  // namespace slime::tinker
