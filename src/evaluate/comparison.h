#pragma once

/// Difference of two results, by the prompts that both have.

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "evaluate/result.h"
#include "evaluate/statistics.h"

namespace slime::evaluate {

struct SetDifference {
  std::string name;
  int64_t num_pairs = 0;
  int64_t num_better = 0, num_worse = 0;  // prompts of the second result, to the first
  int64_t num_unpaired = 0;               // of either
  double first = 0, second = 0;           // means of the paired prompts
  /// second - first; the interval is that of the mean difference of a prompt, by the bootstrap.
  Estimate difference;
};

/// The sets of a result file. Throws ConfigError that names it.
std::vector<SetResult> read_result(const std::string& file);

/// Sets of both, paired by the keys of prompts; of rows that are there several times the first with the first.
/// Behind several sets stands one of all pairs, "all". Throws ConfigError where nothing can be paired.
std::vector<SetDifference> compare(const std::vector<SetResult>& first,
                                   const std::vector<SetResult>& second);

/// Names of sets without a prompt that both results have; they are not among `differences`.
std::vector<std::string> unpaired_sets(const std::vector<SetResult>& first,
                                       const std::vector<SetResult>& second,
                                       const std::vector<SetDifference>& differences);

json::array to_json(const std::vector<SetDifference>& differences);
std::string table_of(const std::vector<SetDifference>& differences);

}  // namespace slime::evaluate
