#pragma once

/// Numbers by name, as they are written: flat names with slashes, as in "rollout/raw_reward"; the
/// part before the slash groups plots.

#include <map>
#include <string>

namespace slime::report {

using Metrics = std::map<std::string, double>;

/// Adds `more` to `all`; a name that is in both takes the value of `more`.
inline void add_metrics(Metrics& all, const Metrics& more) {
  for (const auto& [name, value] : more) all[name] = value;
}

}  // namespace slime::report
