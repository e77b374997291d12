#include "tinker/futures.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "tinker/refusal.h"

namespace slime::tinker {

namespace {

constexpr std::string_view kMark = ":req-";

/// Which process gave an id out; 0: it has none of our forms.
int64_t start_of(std::string_view id) {
  const std::size_t mark = id.find(kMark);
  if (mark == std::string_view::npos) return 0;
  int64_t start = 0;
  const char* end = id.data() + id.size();
  std::from_chars(id.data() + mark + kMark.size(), end, start);
  return start;
}

}  // namespace

json::object failure_of(const std::string& message, Blame blame) {
  return {{"error", message}, {"category", blame == Blame::kUser ? "user" : "server"}};
}

bool is_failure(const Answer& answer) {
  const auto* plain = std::get_if<json::object>(&answer);
  return plain != nullptr && plain->contains("error");
}

Answer outcome_of(const std::function<Answer()>& job) {
  constexpr int kFirstOfServer = 500;  // of HTTP statuses
  try {
    return job();
  } catch (const Refusal& refusal) {
    return failure_of(refusal.what(),
                      refusal.status() < kFirstOfServer ? Blame::kUser : Blame::kServer);
  } catch (const ConfigError& error) {
    return failure_of(error.what(), Blame::kUser);
  } catch (const std::exception& error) {
    return failure_of(error.what(), Blame::kServer);
  }
}

std::string Futures::open(const std::string& session) {
  const std::lock_guard lock(mutex_);
  std::string id = fmt::format("{}{}{}-{}", session, kMark, start_, ++num_opened_);
  futures_[id];
  return id;
}

void Futures::open_again(const std::string& id) {
  const std::lock_guard lock(mutex_);
  futures_[id];
}

void Futures::answer(const std::string& id, Answer answer) {
  auto kept = std::make_shared<const Answer>(std::move(answer));
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    const auto found = futures_.find(id);
    if (found == futures_.end() || found->second.answer) return;
    bytes_ += num_bytes(*kept);
    found->second.answer = std::move(kept);
    call = std::exchange(found->second.call, {});
    answered_.push_back(id);
    while (answered_.size() > 1 && (answered_.size() > kKeptAnswers || bytes_ > kKeptBytes)) {
      const auto oldest = futures_.find(answered_.front());
      bytes_ -= num_bytes(*oldest->second.answer);
      futures_.erase(oldest);
      answered_.pop_front();
    }
  }
  if (call) call();
}

void Futures::fail(const std::string& id, const std::string& message, Blame blame) {
  answer(id, failure_of(message, blame));
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

std::shared_ptr<const Answer> Futures::answer_of(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return known(id).answer;
}

void Futures::drop_calls() {
  const std::lock_guard lock(mutex_);
  for (auto& [id, future] : futures_) future.call = {};
}

Futures::Future& Futures::known(const std::string& id) {
  const auto found = futures_.find(id);
  if (found == futures_.end())
    throw UnknownFuture(
        fmt::format("request_id {}: there is none, or its answer was given long ago", id),
        start_of(id) > 0 && start_of(id) < start_);
  return found->second;
}

const Futures::Future& Futures::known(const std::string& id) const {
  return const_cast<Futures*>(this)->known(id);
}

}  // namespace slime::tinker
