#include "loop/checkpoints.h"

#include "core/calendar.h"
#include "train/checkpoint_directory.h"

namespace slime::loop {

Checkpoints::Checkpoints(const config::ModelFlags& config, const RunFolder& folder,
                         CheckpointOwner owner, buffer::DataSource& prompts, Trainers& trainers,
                         Fates& fates, Engines& engines, RolloutSource* rollout,
                         const FunctionSource* function, UsersPrompts* users, RunMemory& memory,
                         Recorder& recorder)
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

void Checkpoints::save(int64_t step, bool is_published) {
  const auto range = recorder_.phase("save");
  json::object run =
      data_state(step, prompts_, fates_, rollout_ != nullptr ? &rollout_->rollout() : nullptr,
                 function_, users_);
  run["started"] = to_date_text(owner_.started);
  run["weight_version"] = engines_.weight_version().value_or(step + 1);
  run["is_published"] = is_published;
  run["run_id"] = owner_.run_id;
  run["epoch"] = owner_.epoch;
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
