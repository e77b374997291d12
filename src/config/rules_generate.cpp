// Functions of the user's that draw samples.

#include <fmt/format.h>

#include <algorithm>

#include "config/rules.h"

namespace slime::config {
namespace {

constexpr double kDefaultSeconds = 1800;  // a conversation may have many turns and slow tools
constexpr double kMostSeconds = 7 * 24 * 3600;

/// module.name, file.py:name or file.py.
bool names_function(std::string_view path) {
  return path.find('/') != std::string_view::npos ||
         (path.find('.') != std::string_view::npos && !path.ends_with('.') &&
          !path.starts_with('.') && !path.ends_with(':'));
}

}  // namespace

void check_generate(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  if (!config.generate_timeout_seconds) {
    config.generate_timeout_seconds =
        flags.gives("--plugin-timeout-seconds") ? config.plugin_timeout_seconds : kDefaultSeconds;
  }
  const double seconds = *config.generate_timeout_seconds;
  problems.require(seconds >= 0.001 && seconds <= kMostSeconds,
                   fmt::format("--generate-timeout-seconds {}: should be between 0.001 and {}",
                               seconds, kMostSeconds));
  const std::string& path = config.custom_generate_function_path;
  if (path.empty()) return;
  problems.require(names_function(path),
                   fmt::format("--custom-generate-function-path {}: should be module.name, "
                               "file.py:name or file.py",
                               path));
  problems.require(!config.deterministic_schedule,
                   "--deterministic-schedule and --custom-generate-function-path: rounds count "
                   "tokens of the engine and do not wait for functions; leave one out");
  if (config.trains_on_rows()) {
    flags.warnings.push_back(
        fmt::format("--custom-generate-function-path: --loss-type {} trains rows as they are, "
                    "nothing is generated",
                    config.loss_type));
  }
}

}  // namespace slime::config
