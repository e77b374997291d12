#include "setup/evaluation_plan.h"

#include <algorithm>

#include "config/users_functions.h"

namespace slime::setup {
namespace {

/// More of them together would take memory that generation could use, for something that nobody
/// waits for.
constexpr int64_t kMostRequests = 64;

}  // namespace

bool evaluates_beside(const config::RunConfig& config) {
  return config.train_async && !config.takes_turns() && config.eval_interval.has_value() &&
         config::generate_paths(config).empty() && !config::has_users_evaluation(config);
}

int64_t evaluation_requests(const config::RunConfig& config) {
  return std::min(config.sglang_max_running_requests.get(), kMostRequests);
}

}  // namespace slime::setup
