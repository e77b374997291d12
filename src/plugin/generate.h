#pragma once

/// A user's generate function: fn(args, sample, sampling_params[, evaluation]), which makes one or
/// more samples of one.

#include <chrono>
#include <functional>
#include <stop_token>

#include "core/expected.h"
#include "core/made_samples.h"
#include "core/sample.h"
#include "plugin/hosts.h"
#include "plugin/read_sample.h"

namespace slime::plugin {

struct GenerateHook {
  int hook = 0;  // the function's place among those of the hosts
  std::chrono::duration<double> timeout{};
  SampleLimits limits;
  bool is_evaluation = false;
};

/// `hosts` outlive the call. `answer` is called once, on a thread of a host, unless `stop` is
/// requested: with what the function made, which is one sample or more with a common rollout_id, or
/// with the reason why there is nothing.
void generate(Hosts& hosts, const GenerateHook& how, json::object sampling_params, Sample sample,
              std::stop_token stop, std::function<void(Expected<MadeSamples>)> answer);

}  // namespace slime::plugin
