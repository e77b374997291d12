#pragma once

/// Alarms of a run: rules over its metrics that find what a person should look at. docs/view.md states them
/// with their numbers; none of them stops a run.
///
/// Means are over windows of rows that have the metric. The base is the first kWindow of them.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "report/run_files.h"

namespace slime::report {

/// Rows of a mean that is compared with the base.
inline constexpr std::size_t kWindow = 10;

struct AlarmRules {
  // Reward hacking: the reward has risen by both of these ...
  double reward_deviations = 2;     // standard deviations of the base
  double reward_range_share = 0.1;  // of what lies between the lowest and the highest reward so far
  // ... while one of these has happened, compared with the base.
  double length_factor = 2;      // longer or shorter by it
  double entropy_factor = 3;     // higher or lower by it
  double repetition_rise = 0.1;  // share of samples that repeat themselves
  // Stale tokens: of those that a step trains, so many were made by weights so many updates old.
  int64_t stale_lag = 4;
  double stale_share = 0.25;
  // Dead groups: of a step's groups, so many have one reward only.
  double dead_share = 0.8;
  // Zero gradients: so many updates in a row.
  std::size_t zero_gradients = 3;
  // Log-prob difference: above the first, or above the second and so many times the base.
  double difference = 0.1;  // nats
  double small_difference = 0.01;
  double difference_factor = 5;
  /// Stale tokens, dead groups and differences are medians of so many rows: one bad step is no alarm.
  std::size_t short_window = 5;
};

struct Alarm {
  std::string
      kind;  // reward_hacking, stale_tokens, dead_groups, zero_gradients, log_prob_difference
  std::string title;       // "Reward hacking?"
  std::string what;        // with the numbers
  std::string advice;      // what to look at
  int64_t first_step = 0;  // of the last stretch of steps for which the rule holds
  int64_t last_step = 0;
  bool is_now = false;  // holds for the newest row
  /// Which samples show it: {"step": 12, "sort": "length-"}, words of the page's address.
  json::object look;
};

/// Prompts of a step, from the flags in run.json.
std::optional<double> groups_per_step(const json::object& flags);

/// Without `groups` dead groups are not looked for.
std::vector<Alarm> find_alarms(const RunMetrics& metrics, std::optional<double> groups,
                               const AlarmRules& rules = {});

json::array to_json(const std::vector<Alarm>& alarms);

}  // namespace slime::report
