#pragma once

/// A rollout step that was drawn and is not trained yet: one that a rollout function of the user's
/// returned ahead of its time (loop/function_ahead.h). A checkpoint holds it whole.

#include <cstdint>
#include <optional>
#include <string_view>

#include "buffer/data_source.h"
#include "core/json.h"
#include "loop/fates.h"
#include "report/collected.h"
#include "train/checkpoint.h"

namespace slime::loop {

struct DrawnStep {
  int64_t step = 0;
  report::Collected collected;
};

/// The member drawn_step of the run.json of a checkpoint: number, groups, metrics and tokens.
json::object to_json(const DrawnStep& drawn);
/// Throws ConfigError that starts with `where` when it is damaged.
DrawnStep drawn_step_from_json(const json::object& object, std::string_view where);
/// That of a checkpoint, if it has one. Throws like drawn_step_from_json.
std::optional<DrawnStep> drawn_step_of(const train::Checkpoint& checkpoint);

/// In a run that has no use for it its groups wait to be given out again, like any that are begun. Those
/// that cannot, because they are of another size than prompts are drawn with, have failed.
void let_wait(DrawnStep drawn, buffer::DataSource& prompts, Fates& fates);

}  // namespace slime::loop
