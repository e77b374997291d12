#pragma once

/// A rollout step that was sampled and is not trained yet: one that a rollout function of the user's
/// returned ahead of its time (loop/function_ahead.h). A checkpoint holds it whole.

#include <cstdint>
#include <optional>
#include <string_view>

#include "buffer/data_source.h"
#include "core/json.h"
#include "loop/outcome_log.h"
#include "report/collected.h"
#include "train/checkpoint.h"

namespace slime::loop {

struct SampledStep {
  int64_t step = 0;
  report::Collected collected;
};

/// The member sampled_step of the run.json of a checkpoint: number, groups, metrics and tokens.
json::object to_json(const SampledStep& sampled);
/// Throws ConfigError that starts with `where` when it is damaged.
SampledStep sampled_step_from_json(const json::object& object, std::string_view where);
/// That of a checkpoint, if it has one. Throws like sampled_step_from_json.
std::optional<SampledStep> sampled_step_of(const train::Checkpoint& checkpoint);

/// In a run that has no use for it its groups wait to be given out again, like any that are begun. Those
/// that cannot, because they are of another size than prompts are sampled with, have failed.
void let_wait(SampledStep sampled, buffer::DataSource& prompts, OutcomeLog& outcomes);

}  // namespace slime::loop
