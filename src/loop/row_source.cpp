#include "loop/row_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "loop/interrupt.h"
#include "loop/step_abandoned.h"
#include "model/config.h"

namespace slime::loop {
namespace {

constexpr const char* kTooLong = "longer_than_the_model";

}  // namespace

RowSource::RowSource(const config::RunConfig& config, const ModelText& text,
                     buffer::DataSource& prompts, Fates& fates, Recorder& recorder)
    : config_(config),
      rows_(text, config.loss_mask_type),
      max_positions_(model::read_model_config(config.hf_checkpoint).max_positions),
      prompts_(prompts),
      fates_(fates),
      recorder_(recorder) {}

bool RowSource::complete(Group& group) const {
  return config_.is_preference()
             ? rows_.complete_pair(group, config_.chosen_key, config_.rejected_key)
             : rows_.complete(group);
}

bool RowSource::fits(const Group& group) {
  const auto fits_model = [this](const Sample& sample) {
    return static_cast<int64_t>(sample.tokens.size()) <= max_positions_;
  };
  if (std::ranges::all_of(group.samples, fits_model)) return true;
  if (!std::exchange(has_told_of_length_, true)) {
    recorder_.message(
        fmt::format("rows of more than the model's {} tokens are left out; in the ledger they are "
                    "filtered({})",
                    max_positions_, kTooLong));
  }
  return false;
}

Collected RowSource::take(int64_t) {
  const auto range = recorder_.phase("read");
  Collected collected;
  int64_t untrained_in_a_row = 0;
  while (static_cast<int64_t>(collected.groups.size()) < config_.rollout_batch_size) {
    if (Interrupt::came()) throw StepAbandoned();
    const std::optional<int64_t> num_rows = prompts_.prompts_per_epoch();
    if (num_rows && untrained_in_a_row > *num_rows) {
      throw ConfigError(fmt::format(
          "--loss-type {}: none of the {} rows has a token to train on and fits into the model's "
          "{} "
          "positions; a row is a conversation with an answer of the assistant (--input-key {}, "
          "--loss-mask-type {})",
          config_.loss_type, *num_rows, max_positions_, config_.input_key, config_.loss_mask_type));
    }
    const int64_t missing =
        config_.rollout_batch_size - static_cast<int64_t>(collected.groups.size());
    std::vector<Group> groups = prompts_.take(missing);
    if (groups.empty()) break;
    for (Group& group : groups) {
      fates_.dispatched(group);
      const bool has_trained_tokens = complete(group);
      if (has_trained_tokens && fits(group)) {
        collected.groups.push_back(std::move(group));
        untrained_in_a_row = 0;
      } else {
        ++untrained_in_a_row;
        fates_.filtered(group, has_trained_tokens ? kTooLong : "no_trained_token");
      }
    }
  }
  collected.data_ended = static_cast<int64_t>(collected.groups.size()) < config_.rollout_batch_size;
  return collected;
}

}  // namespace slime::loop
