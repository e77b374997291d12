#include "loop/function_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/sampled_tokens.h"
#include "loop/step_abandoned.h"
#include "net/frame_channel.h"
#include "plugin/returned_groups.h"
#include "report/version_metrics.h"
#include "rollout/older_tokens.h"

namespace slime::loop {
namespace {

constexpr const char* kLost = "lost by the rollout function";

}  // namespace

FunctionSource::FunctionSource(const config::RunConfig& config, buffer::DataSource& prompts,
                               roles::Engines& engines, roles::Trainers& trainers,
                               OutcomeLog& outcomes, report::RunMemory& memory,
                               report::Recorder& recorder, plugin::Plugins& plugins,
                               std::optional<SampledStep> sampled)
    : config_(config),
      prompts_(prompts),
      engines_(engines),
      trainers_(trainers),
      outcomes_(outcomes),
      memory_(memory),
      recorder_(recorder),
      plugins_(plugins),
      left_out_([&recorder](std::string_view line) { recorder.message(line); }),
      sampled_(std::move(sampled)) {}

std::vector<Group> FunctionSource::StateLock::taken() const {
  return source_.answers_ != nullptr ? source_.answers_->taken() : std::vector<Group>();
}

/// Kept, or told as failed and why.
Expected<Group> FunctionSource::keep(const json::value& record,
                                     const plugin::ReturnedStep& returned,
                                     std::optional<Group> given, WeightVersion version) {
  const bool is_new = !given;
  if (is_new) given.emplace();
  const plugin::StepLimits limits{.samples = plugins_.limits(/*is_evaluation=*/false),
                                  .samples_per_prompt = config_.n_samples_per_prompt,
                                  .reward_key = config_.reward_key,
                                  .needs_reward = !config_.debug_rollout_only && !config_.use_opd,
                                  .version = version};
  try {
    Group group = plugin::read_group(record, returned.columns, *given, limits);
    if (is_new) {
      prompts_.adopt(group);
      outcomes_.dispatched(group);
    }
    plugin::name_executions(group);
    return group;
  } catch (const net::FrameError& error) {
    if (is_new) {
      prompts_.adopt(*given);
      outcomes_.dispatched(*given);
    }
    const std::string reason = fmt::format("rollout function: {}", error.what());
    outcomes_.failed(*given, reason);
    left_out_.add(*given, reason);
    return failure(error.what());
  }
}

report::Collected FunctionSource::keep_all(const plugin::ReturnedStep& returned,
                                           PromptAnswers& prompts, WeightVersion version,
                                           int64_t num_sampled) {
  report::Collected collected;
  int64_t num_trained = 0;  // of the tokens that this call added
  std::string problem;      // of the first group that cannot be trained
  collected.generated_tokens = prompts.num_sampled_tokens();
  for (const json::value& record : returned.groups) {
    const std::optional<int64_t> ordinal = plugin::ordinal_of(record);
    std::optional<Group> given = ordinal ? prompts.find_taken(*ordinal) : std::nullopt;
    const int64_t before = given ? num_sampled_tokens(*given) : 0;
    if (given) num_trained -= report::num_trained_tokens(std::span(&*given, 1));
    Expected<Group> group = keep(record, returned, std::move(given), version);
    if (!group) {
      if (problem.empty()) problem = ": " + group.error().message;
      continue;
    }
    const int64_t num_new = num_sampled_tokens(*group) - before;
    if (num_new < 0) outcomes_.discarded(group->ordinal, -num_new);
    outcomes_.sampled(std::max<int64_t>(num_new, 0));
    collected.generated_tokens += std::max<int64_t>(num_new, 0);
    num_trained += report::num_trained_tokens(std::span(&*group, 1));
    collected.groups.push_back(std::move(*group));
  }
  // What waits may be trained later. Functions that ask other engines sample nothing here.
  const int64_t num_waiting = prompts.num_sampled_tokens();
  prompts.end(kLost);
  if (collected.groups.empty()) {
    throw ConfigError(fmt::format(
        "--rollout-function-path {}: returned no group that can be trained{}",
        config_.rollout_function_path, returned.groups.empty() ? ", its list is empty" : problem));
  }
  collected.metrics = returned.metrics;
  collected.untrained.emplace();
  collected.masks_are_lost = num_sampled > 0;
  if (const int64_t lost = num_sampled - num_trained - num_waiting; lost > 0)
    (*collected.untrained)["lost"] = lost;
  return collected;
}

void FunctionSource::draw(int64_t step, const StopFlags& stop) {
  const std::shared_ptr<void> at_end(nullptr, [this](void*) { left_out_.end_step(); });
  const WeightVersion version = engines_.client().weight_version();
  PromptAnswers prompts(prompts_, outcomes_, PromptAnswers::Draws::kTokens,
                        plugins_.limits(/*is_evaluation=*/false));
  {
    const std::lock_guard lock(data_mutex_);
    answers_ = &prompts;
  }
  const auto answer = [&](const plugin::Question& question) {
    const std::lock_guard lock(data_mutex_);
    return prompts.answer(question);
  };
  const int64_t sampled_before = plugins_.num_sampled_tokens();
  std::optional<plugin::ReturnedStep> returned;
  std::exception_ptr failed;
  try {
    returned = plugins_.of_rollouts().draw(step, answer, stop);
  } catch (...) {
    failed = std::current_exception();
  }
  const std::lock_guard lock(data_mutex_);
  answers_ = nullptr;
  if (failed) {
    if (!stop.load()) prompts.end(kLost);
    std::rethrow_exception(failed);
  }
  sampled_ = {.step = step,
              .collected = keep_all(*returned, prompts, version,
                                    plugins_.num_sampled_tokens() - sampled_before)};
}

bool FunctionSource::has_sampled(int64_t step) const {
  const std::lock_guard lock(data_mutex_);
  return sampled_ && sampled_->step == step;
}

report::Collected FunctionSource::take_sampled(std::optional<WeightVersion> masks_before) {
  report::Collected collected;
  {
    const std::lock_guard lock(data_mutex_);
    check(sampled_.has_value(), "a step that is taken was sampled");
    collected = std::move(sampled_->collected);
    sampled_.reset();
  }
  if (config_.mask_offpolicy_in_partial_rollout) {
    for (Group& group : collected.groups) {
      rollout::mask_tokens_before(group,
                                  masks_before ? *masks_before : rollout::newest_version(group));
    }
  }
  report::Metrics metrics =
      report::version_metrics(collected.groups, engines_.client().weight_version());
  report::add_metrics(metrics, collected.metrics);
  collected.metrics = std::move(metrics);
  recorder_.reached(static_cast<int64_t>(collected.groups.size()), collected.generated_tokens);
  return collected;
}

report::Collected FunctionSource::take(int64_t step) {
  const auto range = recorder_.phase("generate", "prompts", config_.rollout_batch_size);
  if (!has_sampled(step)) {
    try {
      const StopFlags stop(trainers_.has_failed(), core::Interrupt::flag());
      memory_.explain_shortage(estimate::Phase::kGenerate, [&] { draw(step, stop); });
    } catch (...) {
      trainers_.check_alive();
      if (core::Interrupt::came()) throw StepAbandoned();
      throw;
    }
  }
  return take_sampled(engines_.client().weight_version());
}

}  // namespace slime::loop
