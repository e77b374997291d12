#pragma once

/// The reward that a user's function gives: fn(args, sample), a coroutine function or a plain one.

#include <chrono>
#include <functional>
#include <stop_token>

#include "core/expected.h"
#include "core/sample.h"
#include "plugin/hosts.h"

namespace slime::plugin {

/// `hook`: the function's place among those of `hosts`, which outlive the call. `answer` is called
/// once, on a thread of a host, unless `stop` is requested: with the sample, its reward and what else
/// the function changed in it, or with the reason why there is no reward.
void score(Hosts& hosts, int hook, std::chrono::duration<double> timeout, Sample sample,
           std::stop_token stop, std::function<void(Expected<Sample>)> answer);

/// The rewards of a group's samples from one call: fn(args, samples) (--group-rm). When there is no
/// answer, or one reward is none, none of them has a reward.
void score_group(Hosts& hosts, int hook, std::chrono::duration<double> timeout, Group group,
                 std::stop_token stop, std::function<void(Expected<Group>)> answer);

}  // namespace slime::plugin
