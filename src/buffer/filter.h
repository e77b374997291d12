#pragma once

/// Dynamic sampling filters: which finished groups are worth training on (DAPO, arXiv 2503.14476,
/// section 3.2; spec 17.4).
///
/// A group whose executions (core/executions.h) all have the same reward has no gradient under group normalisation. The
/// loop asks the filter for each finished group and generates more when it dropped some.

#include <functional>
#include <string>

#include "core/filter_verdict.h"
#include "core/sample.h"

namespace slime::buffer {

/// `reward_key` is --reward-key. May throw ConfigError when a reward is not a number.
using FilterFn = std::function<FilterVerdict(const Group& group, const std::string& reward_key)>;

/// Keeps groups whose executions' rewards have an unbiased standard deviation above 1e-6. One alone
/// has none: dropped. The reason is "zero_std_" and the first reward rounded to one decimal, as Python
/// prints it: zero_std_1 for the integer, zero_std_1.0 for the float.
FilterVerdict check_reward_nonzero_std(const Group& group, const std::string& reward_key);

/// The same, and keep_when_insufficient.
FilterVerdict check_reward_nonzero_std_with_fallback(const Group& group,
                                                     const std::string& reward_key);

/// `path` is --dynamic-sampling-filter-path: empty (keeps all), or the original's dotted name of a
/// built-in,
/// "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std[_with_fallback]".
/// Throws ConfigError for another one.
FilterFn make_filter(const std::string& path);

}  // namespace slime::buffer
