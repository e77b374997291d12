// The rollout buffer service beside a run.

#include <fmt/format.h>

#include <algorithm>

#include "config/rules.h"

namespace slime::config {

void check_rollout_buffer(ParsedFlags& flags, Problems& problems) {
  const RunConfig& config = flags.config;
  const std::string& url = config.rollout_buffer_url;
  problems.require(config.fetch_trajectory_retry_times >= -1,
                   fmt::format("--fetch-trajectory-retry-times {}: should be -1 or more",
                               config.fetch_trajectory_retry_times));
  if (url.empty()) {
    for (const std::string_view flag : {"--fetch-trajectory-retry-times", "--rollout-task-type"}) {
      if (flags.gives(flag))
        flags.warnings.push_back(fmt::format("{}: counts with --rollout-buffer-url", flag));
    }
    return;
  }
  const std::string host = url.substr(0, url.find('/', url.find("//") + 2));
  problems.require(url.starts_with("http://") && host.find('@') == std::string::npos,
                   fmt::format("--rollout-buffer-url {}: should be http://HOST:PORT", url));
  if (config.rollout_function_path == RunConfig().rollout_function_path) {
    flags.warnings.push_back(
        fmt::format("--rollout-buffer-url {}: nothing reads it but a rollout function; add "
                    "--rollout-function-path slime.rollout.buffer_rollout.generate_rollout",
                    url));
  }
}

}  // namespace slime::config
