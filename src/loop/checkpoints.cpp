#include "loop/checkpoints.h"

#include <string_view>

#include "core/calendar.h"
#include "core/error.h"
#include "train/checkpoint_directory.h"
#include "train/run_parts.h"

namespace slime::loop {

Checkpoints::Checkpoints(const config::ModelFlags& config, const report::RunFolder& folder,
                         CheckpointOwner owner, buffer::DataSource& prompts,
                         roles::Trainers& trainers, Fates& fates, roles::Engines& engines,
                         RolloutSource* rollout, const FunctionSource* function,
                         plugin::UsersPrompts* users, report::RunMemory& memory,
                         report::Recorder& recorder)
    : config_(config),
      folder_(folder),
      owner_(std::move(owner)),
      prompts_(prompts),
      trainers_(trainers),
      fates_(fates),
      engines_(engines),
      rollout_(rollout),
      function_(function),
      users_(users),
      memory_(memory),
      recorder_(recorder) {}

void Checkpoints::save(int64_t step, bool is_published, std::optional<StepBoundary> boundary) {
  const auto range = recorder_.phase("save");
  recorder_.sync();  // a checkpoint is not ahead of the metrics of its steps
  json::object run =
      boundary
          ? data_state(step, *std::move(boundary), fates_)
          : data_state(step, prompts_, fates_, rollout_ != nullptr ? &rollout_->rollout() : nullptr,
                       rollout_ != nullptr ? rollout_->abandoned() : std::vector<Group>(),
                       function_, users_);
  run["started"] = to_date_text(owner_.started);
  run["weight_version"] = engines_.weight_version().value_or(step + 1);
  run["is_published"] = is_published;
  run["run_id"] = owner_.run_id;
  run["settings"] = owner_.settings;
  run["epoch"] = owner_.epoch;
  for (const train::PartRow& row : train::run_parts()) {
    // The trainer's counters are with its tensors.
    const bool is_of_trainer =
        row.part == train::RunPart::kSchedule || row.part == train::RunPart::kCounters;
    if (*row.folder != '\0' || is_of_trainer || row.may_be_missing) continue;
    for (const std::string_view member : row.stems)
      check(run.contains(member), "a part is saved as its row says");
  }
  const std::filesystem::path directory = trainers_.save({.root = folder_.checkpoints(),
                                                          .model_source = config_.hf_checkpoint,
                                                          .save_optimizer = !config_.no_save_optim},
                                                         step, run);
  // In this order `latest` names a checkpoint that is there, whenever the process dies.
  folder_.set_latest(directory);
  train::remove_old_checkpoints(folder_.checkpoints(), config_.keep_checkpoints, directory);
  recorder_.saved(step);
  memory_.set_last_checkpoint(step);
}

}  // namespace slime::loop
