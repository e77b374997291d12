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

/// Episodes of verifiers come back as traces, which have tokens and log-probs and nothing else of the sampler's.
void check_traces(const RunConfig& config, Problems& problems) {
  const std::string& environment = config.environment.peek();
  if (!environment.starts_with("verifiers:")) return;
  const auto refuse = [&](bool is_given, std::string_view flag, std::string_view what,
                          std::string_view instead) {
    problems.require(!is_given, fmt::format("--environment {} and {}: the traces of verifiers keep "
                                            "no {}; {}",
                                            environment, flag, what, instead));
  };
  refuse(config.rollout_top_p < 1, fmt::format("--rollout-top-p {}", config.rollout_top_p.peek()),
         "tokens that the sampler chose among", "use 1");
  refuse(config.use_score_centering, "--use-score-centering",
         "log-probs of tokens that were not drawn", "leave it out");
  refuse(config.use_rollout_routing_replay, "--use-rollout-routing-replay", "experts of the tokens",
         "leave it out");
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
  check_traces(flags.config, problems);
  const std::string& arguments = flags.config.environment_args.peek();
  problems.require(
      is_object(arguments),
      fmt::format("--environment-args {}: should be a JSON object, as {{\"num_tasks\": 100}}",
                  arguments));
}

}  // namespace slime::config
