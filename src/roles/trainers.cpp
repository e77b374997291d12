#include "roles/trainers.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "core/error.h"
#include "roles/trainer_role.h"
#include "roles/trainer_workers.h"

namespace slime::roles {
namespace {

/// The only rank, in this process: direct calls, nothing is divided or serialised.
class TrainersHere final : public HostedTrainers {
 public:
  explicit TrainersHere(const Clock& clock) : clock_(clock) {}

  void open(model::Network& network, const train::TrainConfig& config,
            train::OtherNetworks others) override {
    role_.emplace(comm::Mesh::single(), network, config, std::move(others), clock_);
  }
  void restore(const train::Checkpoint& checkpoint, uint32_t left_out,
               const train::Warn& warn) override {
    train::restore_trainer(checkpoint, role_->trainer(), left_out, warn);
  }
  train::TrainReport train(const train::TrainBatch& batch) override {
    return role_->trainer().train(batch);
  }
  void weights_published() override { role_->trainer().weights_published(); }
  void gather_weights(model::Network& whole) override {
    const at::NoGradGuard no_grad;
    whole.weights().copy_from(role_->trainer().network().weights());
  }
  WeightChecksums weight_checksums() override { return train::whole_checksums(role_->trainer()); }
  std::filesystem::path save(const train::CheckpointConfig& config, int64_t iteration,
                             const json::object& run) override {
    return train::save_checkpoint(config, iteration, role_->trainer(), run);
  }
  void release_memory() override { role_->trainer().release_gradients(); }
  std::optional<int64_t> num_changes() const override { return role_->trainer().num_changes(); }
  const std::atomic<bool>& has_failed() const override { return has_failed_; }
  void check_alive() override {}

 private:
  const Clock& clock_;
  std::optional<TrainerRole> role_;
  std::atomic<bool> has_failed_{false};  // this process would be gone
};

}  // namespace

void NoTrainers::open(model::Network&, const train::TrainConfig&, train::OtherNetworks) {
  throw BugError("a run without training opens no trainer");
}

train::TrainReport NoTrainers::train(const train::TrainBatch&) {
  throw BugError("a run without training has no batch to train on");
}

void NoTrainers::gather_weights(model::Network&) {
  throw BugError("a run without training has no new weights");
}

WeightChecksums NoTrainers::weight_checksums() {
  throw BugError("a run without training has no weights but those it was given");
}

std::filesystem::path NoTrainers::save(const train::CheckpointConfig&, int64_t,
                                       const json::object&) {
  throw BugError("a run without training saves nothing");
}

void end_run(const std::string& message) {
  std::fputs(fmt::format("\nslime train: {}\n", message).c_str(), stderr);
  std::fflush(nullptr);
  ::_exit(1);
}

std::unique_ptr<HostedTrainers> start_trainers(RankStart start,
                                               const cluster::RunIdentity& identity,
                                               const std::filesystem::path& log_folder,
                                               cluster::Hosts& hosts, const Clock& clock) {
  if (layout_of(start.config).world_size() == 1) return std::make_unique<TrainersHere>(clock);
  return std::make_unique<TrainerWorkers>(std::move(start), identity, log_folder, hosts, clock);
}

}  // namespace slime::roles
