#pragma once

/// The user's function that says which groups are trained.

#include <chrono>
#include <functional>
#include <stop_token>

#include "core/expected.h"
#include "core/filter_verdict.h"
#include "core/sample.h"
#include "plugin/hosts.h"

namespace slime::plugin {

/// A group as its filter left it.
struct Filtered {
  Group group;
  FilterVerdict verdict;
};

/// fn(args, samples): a truth value, or DynamicFilterOutput. `hook`: the function's place among those
/// of `hosts`, which outlive the call. `answer` is called once, on a thread of a host, unless `stop`
/// is requested.
void filter(Hosts& hosts, int hook, std::chrono::duration<double> timeout, Group group,
            std::stop_token stop, std::function<void(Expected<Filtered>)> answer);

}  // namespace slime::plugin
