#pragma once

/// The user's functions that see a sample between its last token and its reward: fn(args, sample, *,
/// rollout_id, evaluation).

#include <chrono>
#include <functional>
#include <stop_token>
#include <vector>

#include "core/expected.h"
#include "core/sample.h"
#include "plugin/hosts.h"
#include "plugin/read_sample.h"

namespace slime::plugin {

/// Where samples are seen, and what holds for them.
struct SampleHooks {
  std::chrono::duration<double> timeout{};
  SampleLimits limits;
  int64_t rollout_id = 0;
  bool is_evaluation = false;
};

/// Each of `hooks`, by their places among those of `hosts`, gets the sample as the one before left it.
/// `answer` is called once, on a thread of a host, unless `stop` is requested. `hosts` outlives the
/// calls.
void call_sample_hooks(Hosts& hosts, std::vector<int> hooks, const SampleHooks& how, Sample sample,
                       std::stop_token stop, std::function<void(Expected<Sample>)> answer);

}  // namespace slime::plugin
