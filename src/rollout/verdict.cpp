#include "rollout/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/sample_fields.h"

namespace slime::rollout {

namespace {

std::size_t first_with(const Group& group, Status status) {
  return static_cast<std::size_t>(std::ranges::find(group.samples, status, &Sample::status) -
                                  group.samples.begin());
}

int64_t num_filtered(const StepEnd& end) {
  int64_t count = 0;
  for (const auto& [reason, dropped] : end.drops)
    if (reason != "failed" && reason != "stale") count += dropped;
  return count;
}

}  // namespace

Verdict verdict_on(const Group& group, const std::optional<FilterVerdict>& filtered,
                   const GroupFilter& filter, int64_t remaining, int64_t target) {
  const std::size_t size = group.samples.size();
  if (const std::size_t index = first_with(group, Status::kAborted); index < size)
    return {.kind = Verdict::Kind::kGivenUp, .reason = "aborted", .index = index};
  if (const std::size_t index = first_with(group, Status::kFailed); index < size)
    return {.kind = Verdict::Kind::kDrop, .reason = "failed", .index = index};
  FilterVerdict verdict = filtered.value_or(FilterVerdict{});
  const auto* rule = std::get_if<FilterRule>(&filter);
  if (!filtered && rule != nullptr) verdict = (*rule)(group);
  if (should_drop(verdict, remaining, target))
    return {.kind = Verdict::Kind::kDrop, .reason = std::move(verdict.reason)};
  return {};
}

void count_failure(StepEnd& end, const RolloutConfig& config, int64_t num_kept,
                   const Sample& sample, const std::string& why) {
  if (++end.num_failed_groups <= config.max_failed_groups) return;
  const int64_t num_ended = num_kept + num_filtered(end) + end.num_failed_groups;
  if (static_cast<double>(end.num_failed_groups) <=
      config.max_failed_share * static_cast<double>(num_ended))
    return;
  throw ConfigError(
      fmt::format("{} groups failed in one rollout step, of {} that ended; sample {}: {} "
                  "(--max-failed-groups {} and --max-failed-group-share {} bound them)",
                  end.num_failed_groups, num_ended, sample.ordinal, why, config.max_failed_groups,
                  config.max_failed_share));
}

void count_drop(StepEnd& end, const RolloutConfig& config, int64_t num_kept,
                const std::string& reason) {
  ++end.drops[reason];
  const int64_t filtered = num_filtered(end);
  if (config.max_filtered_groups == 0 || filtered <= config.max_filtered_groups) return;
  throw ConfigError(
      fmt::format("the filter dropped {} groups of one rollout step, the last as \"{}\", and kept "
                  "{} of {}: rewards, or the filter, leave (almost) nothing to train on. "
                  "--max-filter-ratio bounds how many it may drop",
                  filtered, reason, num_kept, config.groups_per_step));
}

void tell_discarded(PromptSupply* prompts, int64_t ordinal, int64_t num_tokens) {
  if (num_tokens > 0 && prompts != nullptr) prompts->discarded(ordinal, num_tokens);
}

int64_t forget_response(Group& group) {
  int64_t num_tokens = 0;
  for (const Sample& sample : group.samples) num_tokens += sample.response_length();
  group.begun_with.reset();
  // Parts that a function made of one sample have its ordinal: they are one again.
  std::set<int64_t> ordinals;
  std::erase_if(group.samples, [&ordinals](const Sample& sample) {
    return !ordinals.insert(sample.ordinal).second;
  });
  for (Sample& sample : group.samples) {
    sample.tokens.resize(static_cast<std::size_t>(sample.prompt_length));
    std::erase_if(sample.media,
                  [&](const MediaSpan& span) { return span.end > sample.prompt_length; });
    each_field(sample, [](const SampleField& field, auto&& member) {
      using Member = std::decay_t<decltype(member)>;
      if constexpr (std::is_default_constructible_v<Member>)
        if (field.is_of_response) member = Member();
    });
  }
  return num_tokens;
}

}  // namespace slime::rollout
