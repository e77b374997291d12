#include "engine/http/update_inbox.h"

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace slime::engine {

namespace asio = boost::asio;

bool UpdateInbox::reserve(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto reason = share_->grow(bytes);
  if (reason) end_call(0, std::move(*reason));
  return !reason;
}

/// Under mutex_.
void UpdateInbox::end_call(std::size_t index, FinishReason reason) {
  GenerateUpdate last;
  last.finish = std::move(reason);
  updates_.clear();
  updates_.emplace_back(index, std::move(last));
  is_overrun_ = true;
  asio::post(strand_, [self = shared_from_this()] {
    if (const auto callback = std::exchange(self->on_overrun_, nullptr)) callback();
  });
}

void UpdateInbox::push(std::size_t index, GenerateUpdate update) {
  const std::lock_guard lock(mutex_);
  if (is_closed_ || is_overrun_) return;
  const std::size_t queued = queued_bytes(update);
  if (auto reason = share_->grow(kept_bytes(update, cost_) + queued)) {
    end_call(index, std::move(*reason));
  } else {
    queued_bytes_ += queued;
    updates_.emplace_back(index, std::move(update));
  }
  // Posting under the lock: after close() the strand may be gone. A post only queues.
  if (updates_.size() == 1) {
    asio::post(strand_, [self = shared_from_this()] { self->wake_.cancel(); });
  }
}

asio::awaitable<std::vector<IndexedUpdate>> UpdateInbox::take(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    // The deadline is set before looking, so that a wake-up in between ends the wait.
    wake_.expires_at(deadline);
    {
      const std::lock_guard lock(mutex_);
      if (!updates_.empty()) {
        share_->shrink(std::exchange(queued_bytes_, 0));
        co_return std::exchange(updates_, {});
      }
    }
    if (std::chrono::steady_clock::now() >= deadline) co_return std::vector<IndexedUpdate>{};
    boost::system::error_code ignored;
    co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

void UpdateInbox::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  updates_.clear();
  share_.reset();
  on_overrun_ = nullptr;
}

}  // namespace slime::engine
