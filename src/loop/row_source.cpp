#include "loop/row_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "loop/step_abandoned.h"

namespace slime::loop {

RowSource::RowSource(const config::RunConfig& config, const setup::ModelText& text,
                     buffer::DataSource& prompts, OutcomeLog& outcomes, report::Recorder& recorder)
    : config_(config),
      rows_(config, text),
      prompts_(prompts),
      outcomes_(outcomes),
      recorder_(recorder) {}

void RowSource::tell_once(const std::string& reason) {
  if (told_.insert(reason).second) {
    recorder_.message(
        fmt::format("rows are left out: {}; in the ledger they are filtered({})", reason, reason));
  }
}

report::Collected RowSource::take(int64_t) {
  const auto range = recorder_.phase("read");
  report::Collected collected;
  int64_t untrained_in_a_row = 0;
  while (static_cast<int64_t>(collected.groups.size()) < config_.rollout_batch_size) {
    if (core::Interrupt::came()) throw StepAbandoned();
    const std::optional<int64_t> num_rows = prompts_.prompts_per_epoch();
    if (num_rows && untrained_in_a_row > *num_rows) {
      throw ConfigError(fmt::format(
          "--loss-type {}: none of the {} rows has a token to train on and keeps the limits ({}); "
          "a "
          "row is a conversation with an answer of the assistant, or a text (--input-key {})",
          config_.loss_type, *num_rows, fmt::join(told_, ", "), config_.input_key));
    }
    const int64_t missing =
        config_.rollout_batch_size - static_cast<int64_t>(collected.groups.size());
    std::vector<Group> groups = prompts_.take(missing);
    if (groups.empty()) break;
    for (Group& group : groups) {
      outcomes_.dispatched(group);
      if (const auto reason = rows_.complete(group)) {
        ++untrained_in_a_row;
        tell_once(*reason);
        outcomes_.filtered(group, *reason);
      } else {
        collected.groups.push_back(std::move(group));
        untrained_in_a_row = 0;
      }
    }
  }
  collected.data_ended = static_cast<int64_t>(collected.groups.size()) < config_.rollout_batch_size;
  return collected;
}

}  // namespace slime::loop
