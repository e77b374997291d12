#pragma once

/// One reward as an awaitable with a deadline, on threads of its own.

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>

#include "core/expected.h"
#include "core/sample.h"

namespace slime::rollout {

/// A reward that waits for something (a server, a retry) gives up when `stop` is requested.
using ScoreFn = std::function<Expected<json::value>(const Sample&, const std::stop_token& stop)>;

/// Threads that rewards run on.
struct RewardThreads {
  explicit RewardThreads(int num_threads) : pool(static_cast<std::size_t>(num_threads)) {}
  /// When one of them last began with a reward.
  std::atomic<std::chrono::steady_clock::time_point> last_taken{};
  boost::asio::thread_pool pool;
};

/// Scores a copy of the sample on one of the threads. A reward that takes longer than `timeout`
/// gives an error; it is timed from the moment in which a thread takes it, so that one which waits
/// behind a reward that does not heed its stop token is late, not failed. When no thread takes any
/// reward for ten times as long, those that wait give an error too: they might wait for ever.
/// Nothing when `stop` is requested first, which must happen on the thread of the coroutine. In
/// all these cases the reward is told to stop; its thread goes on alone until it does, and its late
/// answer is dropped. An exception of the reward is an error too.
///
/// The threads end before the context of the coroutine does: late answers are posted there.
boost::asio::awaitable<std::optional<Expected<json::value>>> score_within(
    RewardThreads& threads, const ScoreFn& score, Sample sample,
    std::chrono::duration<double> timeout, std::stop_token stop);

}  // namespace slime::rollout
