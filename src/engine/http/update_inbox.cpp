#include "engine/http/update_inbox.h"

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace slime::engine {

namespace asio = boost::asio;

void UpdateInbox::push(std::size_t index, GenerateUpdate update) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return;
  updates_.emplace_back(index, std::move(update));
  // Posting under the lock: after close() the strand may be gone. A post only queues.
  if (updates_.size() == 1)
    asio::post(strand_, [self = shared_from_this()] { self->wake_.cancel(); });
}

asio::awaitable<std::vector<IndexedUpdate>> UpdateInbox::take(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    // The deadline is set before looking, so that a wake-up in between ends the wait.
    wake_.expires_at(deadline);
    {
      const std::lock_guard lock(mutex_);
      if (!updates_.empty()) co_return std::exchange(updates_, {});
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
}

}  // namespace slime::engine
