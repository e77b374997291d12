#pragma once

/// Queue of updates from the engine's thread to a connection's strand.
///
/// The engine's callback only takes a lock, appends and posts one wake-up; the coroutine takes
/// everything that has gathered since. So a slow reader makes frames rarer, and the engine never
/// waits for anybody. What gathers and what is made of it is bounded
/// (engine/http/response_memory.h): beyond the bound the call gets one last update that says so.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/client.h"
#include "engine/http/response_memory.h"

namespace slime::engine {

/// An update and the index of its request in the call.
using IndexedUpdate = std::pair<std::size_t, GenerateUpdate>;

class UpdateInbox final : public std::enable_shared_from_this<UpdateInbox> {
 public:
  /// `memory` outlives the call to close().
  UpdateInbox(boost::asio::any_io_executor strand, ResponseMemory& memory, ResponseCost cost)
      : strand_(strand), wake_(strand), cost_(cost), share_(std::in_place, memory) {}

  /// On the strand: `callback` is called there, once, when the updates outgrow their memory. The
  /// coroutine itself may be writing to a client that does not read.
  void on_overrun(std::function<void()> callback) { on_overrun_ = std::move(callback); }

  /// What the call takes before its first update. False: there is no room, and take() gives the
  /// last update at once.
  bool reserve(std::size_t bytes);

  /// From any thread.
  void push(std::size_t index, GenerateUpdate update);

  /// On the strand: waits for updates. Empty only when `timeout` passed first.
  boost::asio::awaitable<std::vector<IndexedUpdate>> take(std::chrono::milliseconds timeout);

  /// Later updates are dropped, and the strand and the memory are not touched any more.
  void close();

 private:
  /// The updates outgrew their memory: those not taken yet are lost, and one that says so follows.
  void end_call(std::size_t index, FinishReason reason);

  boost::asio::any_io_executor strand_;
  boost::asio::steady_timer wake_;    // on the strand; cancelled when something arrived
  std::function<void()> on_overrun_;  // on the strand
  const ResponseCost cost_;

  std::mutex mutex_;
  std::optional<ResponseShare> share_;  // guarded by mutex_; gone once closed
  std::size_t queued_bytes_ = 0;        // guarded by mutex_; of updates_
  bool is_overrun_ = false;             // guarded by mutex_
  std::vector<IndexedUpdate> updates_;  // guarded by mutex_
  bool is_closed_ = false;              // guarded by mutex_
};

}  // namespace slime::engine
