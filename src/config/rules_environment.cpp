// An environment that gives prompts, generates and scores (docs/environments.md).

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "config/rules.h"
#include "config/users_functions.h"
#include "core/error.h"
#include "core/json.h"

namespace slime::config {
namespace {

/// Flags that say what an environment says.
struct Replaced {
  std::string_view flag;
  std::string_view why;
};
constexpr Replaced kReplaced[] = {
    {"--prompt-data", "the environment gives the prompts"},
    {"--data-source-path", "the environment gives the prompts"},
    {"--disable-rollout-global-dataset", "the environment gives the prompts"},
    {"--input-key", "the environment gives the prompts"},
    {"--label-key", "the environment gives the prompts"},
    {"--rm-type", "the environment scores"},
    {"--custom-rm-path", "the environment scores"},
    {"--group-rm", "the environment scores"},
    {"--custom-generate-function-path", "the environment generates, by the run's own engine"},
    {"--rollout-function-path", "the environment generates, by the run's own engine"},
    {"--eval-prompt-data", "with --eval-interval its own tasks for evaluation are used"},
    {"--eval-config", "with --eval-interval its own tasks for evaluation are used"},
    {"--eval-function-path", "with --eval-interval its own tasks for evaluation are used"},
};

bool is_object(const std::string& text) {
  const auto value = try_parse_json(text);
  return value && value->is_object();
}

}  // namespace

void check_environment(const ParsedFlags& flags, Problems& problems) {
  const std::string& environment = flags.config.environment.peek();
  if (environment.empty()) return;
  for (const Replaced& each : kReplaced) {
    problems.require(!flags.gives(each.flag),
                     fmt::format("--environment {} and {}: {}; leave one out", environment,
                                 each.flag, each.why));
  }
  problems.require(!flags.config.trains_on_rows(),
                   fmt::format("--environment {} and --loss-type {}: rows are trained as they are, "
                               "nothing is generated; leave one out",
                               environment, flags.config.loss_type.peek()));
  const std::string& arguments = flags.config.environment_args.peek();
  problems.require(
      is_object(arguments),
      fmt::format("--environment-args {}: should be a JSON object, as {{\"num_tasks\": 100}}",
                  arguments));
}

}  // namespace slime::config
