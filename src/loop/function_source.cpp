#include "loop/function_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/drawn_tokens.h"
#include "core/error.h"
#include "loop/returned_groups.h"
#include "loop/version_metrics.h"
#include "net/frame_channel.h"
#include "rollout/older_tokens.h"

namespace slime::loop {

FunctionSource::FunctionSource(const config::RunConfig& config, buffer::DataSource& prompts,
                               Engines& engines, Trainers& trainers, Fates& fates,
                               RunMemory& memory, Recorder& recorder, Plugins& plugins)
    : config_(config),
      prompts_(prompts),
      engines_(engines),
      trainers_(trainers),
      fates_(fates),
      memory_(memory),
      recorder_(recorder),
      plugins_(plugins),
      left_out_([&recorder](std::string_view line) { recorder.message(line); }) {}

/// Kept, or told as failed and why.
Expected<Group> FunctionSource::keep(const json::value& record, const ReturnedStep& returned,
                                     std::optional<Group> given, WeightVersion version) {
  const bool is_new = !given;
  if (is_new) given.emplace();
  const StepLimits limits{.samples = plugins_.limits(/*is_evaluation=*/false),
                          .samples_per_prompt = config_.n_samples_per_prompt,
                          .reward_key = config_.reward_key,
                          .needs_reward = !config_.debug_rollout_only && !config_.use_opd,
                          .version = version};
  try {
    Group group = read_group(record, returned.columns, *given, limits);
    if (is_new) {
      prompts_.adopt(group);
      fates_.dispatched(group);
    }
    name_executions(group);
    return group;
  } catch (const net::FrameError& error) {
    if (is_new) {
      prompts_.adopt(*given);
      fates_.dispatched(*given);
    }
    const std::string reason = fmt::format("rollout function: {}", error.what());
    fates_.failed(*given, reason);
    left_out_.add(*given, reason);
    return failure(error.what());
  }
}

Collected FunctionSource::take(int64_t step) {
  const auto range = recorder_.phase("generate", "prompts", config_.rollout_batch_size);
  const std::shared_ptr<void> at_end(nullptr, [this](void*) { left_out_.end_step(); });
  const WeightVersion version = engines_.client().weight_version();
  PromptAnswers prompts(prompts_, fates_, PromptAnswers::Draws::kTokens,
                        plugins_.limits(/*is_evaluation=*/false));
  constexpr const char* kLost = "lost by the rollout function";
  ReturnedStep returned;
  try {
    memory_.explain_shortage(Phase::kGenerate, [&] {
      returned = plugins_.of_rollouts().draw(
          step, [&](const plugin::Question& question) { return prompts.answer(question); },
          trainers_.has_failed());
    });
  } catch (...) {
    prompts.end(kLost);
    trainers_.check_alive();
    throw;
  }
  Collected collected;
  std::string problem;  // of the first group that cannot be trained
  collected.generated_tokens = prompts.num_drawn_tokens();
  for (const json::value& record : returned.groups) {
    const std::optional<int64_t> ordinal = ordinal_of(record);
    std::optional<Group> given = ordinal ? prompts.find_taken(*ordinal) : std::nullopt;
    const int64_t before = given ? num_drawn_tokens(*given) : 0;
    Expected<Group> group = keep(record, returned, std::move(given), version);
    if (!group) {
      if (problem.empty()) problem = ": " + group.error().message;
      continue;
    }
    const int64_t num_new = num_drawn_tokens(*group) - before;
    if (num_new < 0) fates_.discarded(group->ordinal, -num_new);
    fates_.drawn(std::max<int64_t>(num_new, 0));
    collected.generated_tokens += std::max<int64_t>(num_new, 0);
    if (config_.mask_offpolicy_in_partial_rollout) rollout::mask_tokens_before(*group, version);
    recorder_.reached(static_cast<int64_t>(collected.groups.size()) + 1,
                      collected.generated_tokens);
    collected.groups.push_back(std::move(*group));
  }
  prompts.end(kLost);
  if (collected.groups.empty()) {
    throw ConfigError(fmt::format(
        "--rollout-function-path {}: returned no group that can be trained{}",
        config_.rollout_function_path, returned.groups.empty() ? ", its list is empty" : problem));
  }
  collected.metrics = version_metrics(collected.groups, version);
  add_metrics(collected.metrics, returned.metrics);
  return collected;
}

}  // namespace slime::loop
