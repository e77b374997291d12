#pragma once

/// Carries updates from the engine's thread to a connection's strand.
///
/// The engine's callback only takes a lock, appends and posts one wake-up; the coroutine takes
/// everything that has gathered since. So a slow reader makes frames rarer, and the engine never
/// waits for anybody.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/client.h"

namespace slime::engine {

/// An update and the index of its request in the call.
using IndexedUpdate = std::pair<std::size_t, GenerateUpdate>;

class UpdateInbox final : public std::enable_shared_from_this<UpdateInbox> {
 public:
  explicit UpdateInbox(boost::asio::any_io_executor strand) : strand_(strand), wake_(strand) {}

  /// From any thread.
  void push(std::size_t index, GenerateUpdate update);

  /// On the strand: waits for updates. Empty only when `timeout` passed first.
  boost::asio::awaitable<std::vector<IndexedUpdate>> take(std::chrono::milliseconds timeout);

  /// Later updates are dropped, and the strand is not touched any more.
  void close();

 private:
  boost::asio::any_io_executor strand_;
  boost::asio::steady_timer wake_;  // on the strand; cancelled when something arrived

  std::mutex mutex_;
  std::vector<IndexedUpdate> updates_;  // guarded by mutex_
  bool is_closed_ = false;              // guarded by mutex_
};

}  // namespace slime::engine
