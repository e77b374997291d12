#pragma once

/// One reward as an awaitable with a deadline, on threads of its own.

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>

#include "core/expected.h"
#include "core/sample.h"
#include "rollout/runtime.h"

namespace slime::rollout {

/// A reward that waits for something (a server, a retry) gives up when `stop` is requested.
using ScoreFn = std::function<Expected<json::value>(const Sample&, const std::stop_token& stop)>;

/// Scores a copy of the sample on one of the runtime's threads for rewards. A reward that takes longer than `timeout`
/// gives an error; it is timed from the moment in which a thread takes it, so that one which waits
/// behind a reward that does not heed its stop token is late, not failed. When no thread takes any
/// reward for ten times as long, those that wait give an error too: they might wait for ever.
/// Nothing when `stop` is requested first, which must happen on the thread of the coroutine. In
/// all these cases the reward is told to stop; its thread goes on alone until it does, and its late
/// answer is dropped. An exception of the reward is an error too.
boost::asio::awaitable<std::optional<Expected<json::value>>> score_within(
    Runtime& runtime, const ScoreFn& score, Sample sample, std::chrono::duration<double> timeout,
    std::stop_token stop);

/// A score that nobody computes on a thread of ours: somebody else answers. `answer` is called once,
/// on any thread, and in time whatever happens to that somebody; once `stop` is requested it may stay
/// away. What comes back is the sample with its reward, and with what else the function changed.
using AskScoreFn = std::function<void(Sample sample, std::stop_token stop,
                                      std::function<void(Expected<Sample>)> answer)>;

/// The answer; nothing when `stop` is requested first, on the thread of the coroutine. A later
/// answer is dropped.
boost::asio::awaitable<std::optional<Expected<Sample>>> score_elsewhere(AskScoreFn ask,
                                                                        Sample sample,
                                                                        std::stop_token stop);

}  // namespace slime::rollout
