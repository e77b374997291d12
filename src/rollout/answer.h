#pragma once

/// Callback types for asynchronous calls that are answered on a foreign thread.

#include <functional>
#include <stop_token>

#include "core/expected.h"

namespace slime::rollout {

/// Called once, on any thread; once the stop token is requested it may stay away.
template <typename T>
using AnswerFn = std::function<void(Expected<T>)>;

template <typename T>
using AskFn = std::function<void(std::stop_token, AnswerFn<T>)>;

}  // namespace slime::rollout
