#include "loop/row_source.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slime::loop {

RowSource::RowSource(const config::RunConfig& config, const ModelText& text,
                     buffer::DataSource& prompts, Fates& fates, Recorder& recorder)
    : config_(config),
      rows_(text, config.loss_mask_type),
      prompts_(prompts),
      fates_(fates),
      recorder_(recorder) {}

bool RowSource::complete(Group& group) const {
  return config_.is_preference()
             ? rows_.complete_pair(group, config_.chosen_key, config_.rejected_key)
             : rows_.complete(group);
}

Collected RowSource::take(int64_t) {
  const auto range = recorder_.phase("read");
  Collected collected;
  int64_t untrained_in_a_row = 0;
  while (static_cast<int64_t>(collected.groups.size()) < config_.rollout_batch_size) {
    const std::optional<int64_t> num_rows = prompts_.prompts_per_epoch();
    if (num_rows && untrained_in_a_row > *num_rows) {
      throw ConfigError(fmt::format(
          "--loss-type {}: none of the {} rows has a token to train on; a row is a conversation "
          "with an answer of the assistant (--input-key {}, --loss-mask-type {})",
          config_.loss_type, *num_rows, config_.input_key, config_.loss_mask_type));
    }
    const int64_t missing =
        config_.rollout_batch_size - static_cast<int64_t>(collected.groups.size());
    std::vector<Group> groups = prompts_.take(missing);
    if (groups.empty()) break;
    for (Group& group : groups) {
      fates_.dispatched(group);
      if (complete(group)) {
        collected.groups.push_back(std::move(group));
        untrained_in_a_row = 0;
      } else {
        ++untrained_in_a_row;
        fates_.filtered(group, "no_trained_token");
      }
    }
  }
  return collected;
}

}  // namespace slime::loop
