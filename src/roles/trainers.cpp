#include "roles/trainers.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "core/error.h"
#include "core/safe_text.h"

namespace slime::roles {

void TrainersHere::restore(const train::Checkpoint& checkpoint, uint32_t left_out,
                           const train::Warn& warn) {
  train::restore_trainer(checkpoint, trainer_, left_out, warn);
}

train::TrainReport TrainersHere::train(const train::TrainBatch& batch) {
  return trainer_.train(batch);
}

void TrainersHere::gather_weights(model::Network& whole) {
  const at::NoGradGuard no_grad;
  whole.trained().copy_from(trainer_.network().trained());
}

WeightChecksums TrainersHere::weight_checksums(kernels::MatrixFormat matrices) {
  return train::whole_checksums(trainer_, matrices);
}

std::filesystem::path TrainersHere::save(const train::CheckpointConfig& config, int64_t iteration,
                                         const json::object& run) {
  return train::save_checkpoint(config, iteration, trainer_, run);
}

train::TrainReport NoTrainers::train(const train::TrainBatch&) {
  throw BugError("a run without training has no batch to train on");
}

void NoTrainers::gather_weights(model::Network&) {
  throw BugError("a run without training has no new weights");
}

WeightChecksums NoTrainers::weight_checksums(kernels::MatrixFormat) {
  throw BugError("a run without training has no weights but those it was given");
}

std::filesystem::path NoTrainers::save(const train::CheckpointConfig&, int64_t,
                                       const json::object&) {
  throw BugError("a run without training saves nothing");
}

void end_run(const std::string& message) {
  std::fputs(fmt::format("\nslime train: {}\n", safe_text(message)).c_str(), stderr);
  std::fflush(nullptr);
  ::_exit(1);
}

}  // namespace slime::roles
