#include "tinker/trained_model.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "comm/mesh.h"
#include "core/error.h"
#include "model/placement.h"
#include "roles/networks.h"
#include "setup/train_config.h"
#include "train/checkpoint.h"
#include "train/checkpoint_directory.h"

namespace slime::tinker {
namespace fs = std::filesystem;
namespace {

/// What a pass by requests does not do.
void check_train_config(const train::TrainConfig& config) {
  std::vector<std::string> problems;
  const auto refuse = [&problems](bool is_given, const char* what) {
    if (is_given) problems.emplace_back(fmt::format("{}: requests do not train with it", what));
  };
  refuse(config.objective != train::Objective::kPolicy, "--loss-type");
  refuse(config.critic.has_value(), "--advantage-estimator ppo");
  refuse(config.replays_top_p, "--rollout-top-p below 1");
  refuse(config.policy.centering.has_value(), "--use-score-centering");
  refuse(config.router_losses.is_on(), "--moe-aux-loss-coeff, --moe-z-loss-coeff");
  refuse(config.routing_replay != train::TrainConfig::RoutingReplay::kNone,
         "--use-routing-replay, --use-rollout-routing-replay");
  refuse(config.true_on_policy, "--true-on-policy");
  refuse(config.keep_old_actor, "--keep-old-actor");
  refuse(config.has_teacher_model, "--use-opd");
  if (!problems.empty()) throw ConfigError(problems);
}

bool has_tensors_of(const model::Weights& one, const model::Weights& other) {
  return std::ranges::equal(one.tensors(), other.tensors(),
                            [](const model::NamedWeight& a, const model::NamedWeight& b) {
                              return a.name == b.name && a.full_shape == b.full_shape;
                            });
}

}  // namespace

TrainedModel::TrainedModel(const config::RunConfig& config, const Clock& clock)
    : config_(config), precision_(model::precision_on(config.device, config.dtype)) {
  network_ = model::load_network(config.hf_checkpoint.get(), precision_);
  const comm::Mesh& mesh = comm::Mesh::single();
  train::TrainConfig trainer =
      setup::make_train_config(config, /*num_rollouts=*/1, network_->config().has_experts());
  check_train_config(trainer);
  trainer.frozen = roles::frozen_names(config, network_->weights(), mesh);
  trainer_ = std::make_unique<train::Trainer>(
      *network_, trainer, clock, roles::load_other_networks(config, precision_, mesh), mesh);
}

ModelLimits TrainedModel::limits() const {
  return {.vocab_size = network_->config().vocab_size,
          .max_positions = network_->config().max_positions};
}

train::GivenPass TrainedModel::pass(const train::GivenBatch& batch, const train::GivenLoss& loss,
                                    bool adds_gradients) {
  return adds_gradients ? trainer_->add_gradients(batch, loss) : trainer_->look_at(batch, loss);
}

train::GivenUpdateReport TrainedModel::update(const train::GivenUpdate& update) {
  const train::GivenUpdateReport report = trainer_->apply(update);
  ++updates_;
  ++versions_;
  return report;
}

void TrainedModel::save(const fs::path& directory, bool overwrites) {
  std::error_code ignored;
  if (fs::exists(directory, ignored) && !overwrites)
    throw ConfigError(fmt::format("{}: is there already", directory.string()));
  if (fs::exists(directory, ignored) && !fs::exists(directory / "run.json", ignored) &&
      !fs::is_empty(directory, ignored))
    throw ConfigError(fmt::format(
        "{}: holds no weights that were saved here, and is not overwritten", directory.string()));
  // Written beside it, and renamed when it is whole.
  const fs::path part = directory.parent_path() / ("." + directory.filename().string() + ".part");
  fs::remove_all(part, ignored);
  const fs::path written = train::save_checkpoint(
      {.root = part, .model_source = config_.hf_checkpoint.get(), .save_optimizer = true}, 0,
      *trainer_, {{"updates", updates_}});
  if (overwrites) fs::remove_all(directory, ignored);
  std::error_code error;
  fs::rename(written, directory, error);
  fs::remove_all(part, ignored);
  if (error)
    throw ConfigError(
        fmt::format("{}: cannot be written: {}", directory.string(), error.message()));
}

void TrainedModel::copy_weights(const fs::path& directory) {
  const auto loaded = model::load_network(directory, precision_);
  const at::NoGradGuard no_grad;
  if (!has_tensors_of(loaded->weights(), network_->weights()))
    throw ConfigError(fmt::format("{}: is another model than {}", directory.string(),
                                  config_.hf_checkpoint.get()));
  network_->weights().copy_from(loaded->weights());
  trainer_->begin_again();
  ++versions_;
}

void TrainedModel::load(const fs::path& directory, bool restores) {
  if (!restores) {
    copy_weights(directory);
    updates_ = 0;
    return;
  }
  // All of it before anything changes: weights of one state and moments of another are neither.
  if (const std::string damage = train::checkpoint_damage(directory); !damage.empty())
    throw ConfigError(fmt::format("{} is damaged: {}", directory.string(), damage));
  const train::Checkpoint checkpoint = train::read_checkpoint(directory, 0);
  std::vector<std::string> missing;
  train::check_restorable(checkpoint, *trainer_, 0,
                          [&missing](const std::string& line) { missing.push_back(line); });
  if (!missing.empty()) throw ConfigError(missing);
  copy_weights(directory);
  train::restore_trainer(checkpoint, *trainer_, 0, [](const std::string&) {});
  const json::value* updates = checkpoint.run.if_contains("updates");
  updates_ = updates != nullptr && updates->is_int64() ? updates->get_int64() : 0;
}

void TrainedModel::begin_again() {
  trainer_->begin_again();  // gradients that the model before has added and not used
  if (versions_ > 0) copy_weights(config_.hf_checkpoint.get());
  updates_ = 0;
}

SharedSnapshot TrainedModel::snapshot() {
  if (last_ && version_of_last_ == versions_) return last_;
  auto taken = std::make_shared<Snapshot>();
  taken->network = roles::make_blank_copy(*network_, precision_);
  taken->updates = updates_;
  {
    const at::NoGradGuard no_grad;
    taken->network->weights().copy_from(network_->weights());
  }
  version_of_last_ = versions_;
  last_ = std::move(taken);
  return last_;
}

SharedSnapshot TrainedModel::snapshot_of(const fs::path& directory) const {
  auto taken = std::make_shared<Snapshot>();
  taken->network = model::load_network(directory, precision_);
  return taken;
}

}  // namespace slime::tinker
