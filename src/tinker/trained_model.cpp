#include "tinker/trained_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <utility>

#include "comm/mesh.h"
#include "core/error.h"
#include "kernels/device.h"
#include "model/adapters.h"
#include "model/placement.h"
#include "model/save.h"
#include "roles/networks.h"
#include "setup/train_config.h"
#include "tinker/whole_directory.h"
#include "train/checkpoint.h"
#include "train/checkpoint_directory.h"

namespace slime::tinker {
namespace fs = std::filesystem;
namespace {

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

/// What they take on the disk with their moments, and with masters where they are narrower than those.
int64_t saved_bytes(const model::Weights& weights) {
  constexpr int64_t kWide = 4;
  const int64_t wide = weights.flat().element_size() < kWide ? 3 : 2;
  return weights.num_bytes() + wide * kWide * weights.num_parameters();
}

bool has_tensors_of(const model::Weights& one, const model::Weights& other) {
  return std::ranges::equal(one.tensors(), other.tensors(),
                            [](const model::NamedWeight& a, const model::NamedWeight& b) {
                              return a.name == b.name && a.full_shape == b.full_shape;
                            });
}

}  // namespace

void check_takes_requests(const config::RunConfig& config, bool has_experts) {
  check_train_config(setup::make_train_config(config, /*num_rollouts=*/1, has_experts));
}

TrainedModel::TrainedModel(const config::RunConfig& config, const Clock& clock)
    : config_(config), precision_(model::precision_on(config.device, config.dtype)) {
  network_ = model::load_network(config.hf_checkpoint.get(), precision_);
  const comm::Mesh& mesh = comm::Mesh::single();
  train::TrainConfig trainer =
      setup::make_train_config(config, /*num_rollouts=*/1, network_->config().has_experts());
  check_train_config(trainer);
  trainer.frozen = roles::frozen_names(config, network_->weights(), mesh);
  trainer_ = std::make_unique<train::Trainer>(
      *network_, trainer, clock, roles::load_other_networks(config, *network_, precision_, mesh),
      mesh);
}

TrainedModel::TrainedModel(const config::RunConfig& config, const Clock& clock,
                           std::shared_ptr<model::Network> base, const model::AdapterForm& form,
                           uint64_t seed)
    : config_(config),
      precision_(model::precision_on(config.device, config.dtype)),
      network_(std::move(base)),
      tensors_(std::make_shared<model::AdapterTensors>(network_->config(), network_->weights(),
                                                       form, comm::Mesh::single())) {
  tensors_->begin(form.config.init, seed);
  const train::TrainConfig trainer =
      setup::make_train_config(config, /*num_rollouts=*/1, network_->config().has_experts());
  take_slot();
  // The reference of a divergence is the base.
  trainer_ = std::make_unique<train::Trainer>(*network_, trainer, clock);
}

void TrainedModel::take_slot() {
  if (!tensors_) return;
  if (network_->adapters() == nullptr)
    network_->set_adapters(std::make_shared<model::Adapters>(*network_, 1));
  if (network_->adapters()->at(0) != tensors_) network_->adapters()->put(0, tensors_);
}

train::GivenPass TrainedModel::pass(const train::GivenBatch& batch, const train::GivenLoss& loss,
                                    bool adds_gradients) {
  take_slot();
  has_gradients_ |= adds_gradients;
  return adds_gradients ? trainer_->add_gradients(batch, loss) : trainer_->look_at(batch, loss);
}

train::GivenUpdateReport TrainedModel::update(const train::GivenUpdate& update) {
  take_slot();
  has_gradients_ = false;
  const train::GivenUpdateReport report = trainer_->apply(update);
  ++updates_;
  ++versions_;
  return report;
}

void TrainedModel::check_saved_to(const fs::path& directory, bool overwrites) {
  std::error_code ignored;
  if (fs::exists(directory, ignored) && !overwrites)
    throw ConfigError(fmt::format("{}: is there already", directory.string()));
  if (fs::exists(directory, ignored) && !fs::exists(directory / "run.json", ignored) &&
      !fs::is_empty(directory, ignored))
    throw ConfigError(fmt::format(
        "{}: holds no weights that were saved here, and is not overwritten", directory.string()));
}

json::object TrainedModel::run_file(json::object more) const {
  more["updates"] = updates_;
  return train::run_file(*trainer_, 0, more);
}

void TrainedModel::save(const fs::path& directory, bool overwrites, json::object more) {
  check_saved_to(directory, overwrites);
  take_slot();
  more["updates"] = updates_;
  const auto bytes = static_cast<uint64_t>(saved_bytes(network_->trained()));
  write_whole_directory(directory, bytes, [&](const fs::path& part) {
    return train::save_checkpoint(
        {.root = part, .model_source = config_.hf_checkpoint.get(), .save_optimizer = true}, 0,
        *trainer_, more);
  });
}

void TrainedModel::check_is_own(const fs::path& directory, const model::AdapterFile& file) const {
  const model::AdapterForm& own = tensors_->form();
  const auto is_own = [&own](const model::AdapterForm::Pair& pair) {
    const model::AdapterForm::Pair* known = own.find(pair.module);
    return known != nullptr && known->rank == pair.rank && known->scale == pair.scale;
  };
  if (file.form().pairs.size() != own.pairs.size() ||
      !std::ranges::all_of(file.form().pairs, is_own))
    throw ConfigError(
        fmt::format("{}: an adapter of other matrices, ranks or scales than this "
                    "model's; make a model from it",
                    directory.string()));
}

void TrainedModel::copy_adapter(const fs::path& directory, const model::AdapterFile& file) {
  check_is_own(directory, file);
  file.read_into(*tensors_);
  trainer_->begin_again();
  has_gradients_ = false;
  ++versions_;
}

void TrainedModel::copy_weights(const fs::path& directory, const model::AdapterFile* adapter) {
  if (tensors_ && adapter != nullptr) return copy_adapter(directory, *adapter);
  if (tensors_) return copy_adapter(directory, model::AdapterFile(directory, network_->config()));
  const auto loaded = model::load_network(directory, precision_);
  const at::NoGradGuard no_grad;
  if (!has_tensors_of(loaded->weights(), network_->weights()))
    throw ConfigError(fmt::format("{}: is another model than {}", directory.string(),
                                  config_.hf_checkpoint.get()));
  network_->weights().copy_from(loaded->weights());
  trainer_->begin_again();
  has_gradients_ = false;
  ++versions_;
}

void TrainedModel::load(const fs::path& directory, bool restores,
                        const model::AdapterFile* adapter) {
  take_slot();
  if (!restores) {
    copy_weights(directory, adapter);
    updates_ = 0;
    return;
  }
  // All of it before anything changes: weights of one state and moments of another are neither.
  if (const std::string damage = train::checkpoint_damage(directory); !damage.empty())
    throw ConfigError(fmt::format("{} is damaged: {}", directory.string(), damage));
  const train::Checkpoint checkpoint = train::read_checkpoint(directory, 0);
  if (!fs::is_directory(directory / "optimizer"))
    throw ConfigError(fmt::format(
        "{}: was saved without the optimizer's state; load the weights alone", directory.string()));
  if (tensors_ && adapter == nullptr)
    check_is_own(directory, model::AdapterFile(directory, network_->config()));
  std::vector<std::string> missing;
  train::check_restorable(checkpoint, *trainer_, 0,
                          [&missing](const std::string& line) { missing.push_back(line); });
  if (!missing.empty()) throw ConfigError(missing);
  copy_weights(directory, adapter);
  train::restore_trainer(checkpoint, *trainer_, 0, [](const std::string&) {});
  const json::value* updates = checkpoint.run.if_contains("updates");
  updates_ = updates != nullptr && updates->is_int64() ? updates->get_int64() : 0;
}

void TrainedModel::begin_again() {
  trainer_->begin_again();  // gradients that the model before has added and not used
  has_gradients_ = false;
  if (versions_ > 0) copy_weights(config_.hf_checkpoint.get(), nullptr);
  updates_ = 0;
}

SharedSnapshot TrainedModel::snapshot() {
  if (last_ && version_of_last_ == versions_) return last_;
  auto taken = std::make_shared<Snapshot>();
  taken->updates = updates_;
  const at::NoGradGuard no_grad;
  if (tensors_) {
    taken->adapter = std::make_shared<model::AdapterTensors>(
        network_->config(), network_->weights(), tensors_->form(), comm::Mesh::single());
    Tensor copy = taken->adapter->weights().flat();
    copy.copy_(tensors_->weights().flat());
  } else {
    taken->network = roles::make_blank_copy(*network_, precision_);
    taken->network->weights().copy_from(network_->weights());
  }
  version_of_last_ = versions_;
  last_ = std::move(taken);
  return last_;
}

SharedSnapshot whole_snapshot(const config::RunConfig& config, const fs::path& directory) {
  auto taken = std::make_shared<Snapshot>();
  taken->network = model::load_network(directory, model::precision_on(config.device, config.dtype));
  return taken;
}

SharedSnapshot adapter_snapshot(model::Network& base, const fs::path& directory) {
  const model::AdapterFile file(directory, base.config());
  if (!file.form().saved.empty())
    throw ConfigError(
        fmt::format("{}: holds whole modules ({}), which are not sampled beside others",
                    directory.string(), file.form().saved.front()));
  auto taken = std::make_shared<Snapshot>();
  taken->adapter = std::make_shared<model::AdapterTensors>(base.config(), base.weights(),
                                                           file.form(), comm::Mesh::single());
  file.read_into(*taken->adapter);
  return taken;
}

void write_snapshot(const Snapshot& snapshot, const fs::path& directory) {
  const auto bytes =
      static_cast<uint64_t>(snapshot.adapter ? snapshot.adapter->weights().num_bytes()
                                             : snapshot.network->weights().num_bytes());
  write_whole_directory(directory, bytes, [&](const fs::path& part) {
    fs::create_directories(part);
    if (snapshot.adapter) {
      model::write_adapter(part, *snapshot.adapter);
    } else {
      model::save_network(*snapshot.network, part);
    }
    return part;
  });
}

void write_saved_adapter(const config::RunConfig& config, const Snapshot& snapshot,
                         const json::object& run_file, const fs::path& directory) {
  const auto bytes = static_cast<uint64_t>(snapshot.adapter->weights().num_bytes());
  write_whole_directory(directory, bytes, [&](const fs::path& part) {
    return train::save_adapter({.root = part, .model_source = config.hf_checkpoint.get()},
                               *snapshot.adapter, run_file);
  });
}

bool has_adapters(const config::RunConfig& config) {
  const model::Precision precision = model::precision_on(config.device, config.dtype);
  const at::Tensor one = at::empty({1}, at::TensorOptions().device(precision.device));
  const bool has_kernels = precision.device.is_cpu() || c10::elementSize(precision.weights) == 2;
  return has_kernels && kernels::kernels_for(one).has_adapters();
}

}  // namespace slime::tinker
