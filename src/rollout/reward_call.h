#pragma once

/// One reward as an awaitable with a deadline, on threads of its own.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <functional>

#include "core/expected.h"
#include "core/sample.h"

namespace slime::rollout {

using ScoreFn = std::function<Expected<json::value>(const Sample&)>;

/// Scores a copy of the sample on `pool`. A reward that takes longer than `timeout` gives an error;
/// its thread goes on alone and its late answer is dropped. An exception of the reward is an error
/// too.
boost::asio::awaitable<Expected<json::value>> score_within(boost::asio::thread_pool& pool,
                                                           const ScoreFn& score, Sample sample,
                                                           std::chrono::duration<double> timeout);

}  // namespace slime::rollout
