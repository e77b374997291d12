#pragma once

/// Result of an evaluation: estimates of each data set, and values of each prompt for comparisons.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/sample.h"
#include "evaluate/statistics.h"

namespace slime::evaluate {

struct PromptResult {
  std::string key;  // of the row's content: the same row in another file has the same
  double mean = 0;  // reward over its executions; one that failed counts 0
  int64_t size = 0;
  int64_t correct = 0;  // executions whose reward is exactly 1
};

struct SetResult {
  std::string name;
  int64_t num_samples = 0;
  int64_t num_failed = 0;
  int64_t num_too_long = 0;  // prompts that were left out
  double truncated_ratio = 0;
  double mean_length = 0;  // tokens of a response
  Estimate mean;
  /// k = 1, 2, 4, ... up to the size of the largest group; over prompts with at least k executions.
  std::vector<std::pair<int64_t, Estimate>> pass_at_k;
  std::vector<PromptResult> prompts;
};

/// `key_of`: of a prompt, by its ordinal.
SetResult to_result(const std::string& name, std::span<const Group> groups,
                    const std::string& reward_key,
                    const std::function<std::string(int64_t ordinal)>& key_of);

json::object to_json(const SetResult& set);
/// Name and prompts alone, which comparisons need. Throws ConfigError, which begins with `where`.
SetResult set_from_json(const json::value& value, const std::string& where);

/// A row for each set, and what the columns' intervals are below.
std::string table_of(std::span<const SetResult> sets);

}  // namespace slime::evaluate
