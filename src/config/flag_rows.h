#pragma once

/// The rows of the flag table, one list per group, each in a file of its own (flag_rows_*.cpp).

#include <string_view>
#include <utility>
#include <vector>

#include "config/flag_table.h"

namespace slime::config {

/// Values behind a flag that has no member.
inline constexpr int kSwitch = 0;
inline constexpr int kValue = 1;
inline constexpr int kList = 2;

inline Flag works(std::string_view name, FlagMember member, std::string_view meaning,
                  std::vector<std::string_view> choices = {}) {
  return {name, FlagGroup::kModel, FlagStatus::kWorks, member, meaning, std::move(choices), -1};
}
/// `why` it has no effect here.
inline Flag accepted(std::string_view name, int takes_values, std::string_view why) {
  return {name, FlagGroup::kModel, FlagStatus::kAccepted, std::monostate(), why, {}, takes_values};
}
/// `instead`: what to use.
inline Flag refused(std::string_view name, int takes_values, std::string_view instead) {
  return {name, FlagGroup::kModel, FlagStatus::kRefused, std::monostate(), instead,
          {},   takes_values};
}

// Reasons that many rows share.
inline constexpr std::string_view kAlways = "always so here";
inline constexpr std::string_view kFromConfig = "the architecture is read from config.json";
inline constexpr std::string_view kGpuPath = "chooses a GPU path; the program chooses its own";
inline constexpr std::string_view kOneWeights =
    "trainer and engine share one set of weights, nothing is moved or offloaded";
inline constexpr std::string_view kOneProcess = "ranks are on one host";
inline constexpr std::string_view kOneDispatcher =
    "rows travel to their experts by one exchange, of exactly the rows that there are";
inline constexpr std::string_view kOneEngine = "one engine serves the run, in this process";
inline constexpr std::string_view kNoSpeculation =
    "on the CPU the engine draws from the same distribution without it; refused on a GPU";

std::vector<Flag> model_flags();
std::vector<Flag> data_flags();
std::vector<Flag> rollout_flags();
std::vector<Flag> async_flags();
std::vector<Flag> engine_flags();
std::vector<Flag> engine_worker_flags();
std::vector<Flag> reward_flags();
std::vector<Flag> algorithm_flags();
std::vector<Flag> optimizer_flags();
std::vector<Flag> batch_flags();
std::vector<Flag> evaluation_flags();
std::vector<Flag> output_flags();
std::vector<Flag> shape_flags();
std::vector<Flag> parallel_flags();

}  // namespace slime::config
