#include "engine/constraint_queue.h"

#include <utility>
#include <vector>

namespace slime::engine {

using Cause = FinishReason::Cause;

ConstraintQueue::ConstraintQueue(std::size_t most, TellReady tell_ready)
    : most_(most), tell_ready_(std::move(tell_ready)) {}

bool ConstraintQueue::add(Submission& submission, ConstraintSource& source) {
  const RequestHandle handle = submission.handle;
  // The source reads it while others may end the request.
  const GenerateRequest request = submission.request;
  {
    const std::lock_guard lock(mutex_);
    if (tell_ready_ == nullptr || waiting_.size() >= most_) return false;
    waiting_.emplace(handle, std::move(submission));
  }
  source.make(request, [self = shared_from_this(), handle](auto constraint) {
    self->made(handle, std::move(constraint));
  });
  return true;
}

void ConstraintQueue::made(RequestHandle handle, ConstraintSource::MadeConstraint constraint) {
  std::optional<Submission> refused;
  FinishReason reason;
  {
    const std::lock_guard lock(mutex_);
    const auto found = waiting_.find(handle);
    if (found == waiting_.end()) return;  // ended meanwhile
    if (constraint) {
      found->second.constraint = std::move(*constraint);
      if (tell_ready_(handle)) return;
      reason = aborted(Cause::kQueueFull, "the queue is full; try again later");
    } else {
      reason = std::move(constraint.error());
    }
    refused = std::move(found->second);
    waiting_.erase(found);
  }
  refuse(*refused, std::move(reason));
}

std::optional<Submission> ConstraintQueue::take(RequestHandle handle) {
  const std::lock_guard lock(mutex_);
  auto node = waiting_.extract(handle);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

void ConstraintQueue::end_if(const std::function<bool(const Submission&)>& matches,
                             const FinishReason& reason) {
  std::vector<Submission> ended;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (!matches(it->second)) {
        ++it;
        continue;
      }
      ended.push_back(std::move(it->second));
      it = waiting_.erase(it);
    }
  }
  for (const Submission& submission : ended) refuse(submission, reason);
}

void ConstraintQueue::close(const FinishReason& reason) {
  {
    const std::lock_guard lock(mutex_);
    tell_ready_ = nullptr;
  }
  end_if([](const Submission&) { return true; }, reason);
}

int64_t ConstraintQueue::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(waiting_.size());
}

}  // namespace slime::engine
