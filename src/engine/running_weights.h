#pragma once

/// The weights that the engine computes from, and the version that they are called by.
///
/// New ones are read, compared and brought to the engine's device on the thread of whoever brings
/// them; the engine stands still only while they are copied on it (StepRunner::copy_weights). What
/// becomes of requests and of keys and values then: StepPipeline::change_weights.

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/expected.h"
#include "core/sample.h"
#include "engine/client.h"
#include "engine/step_runner.h"
#include "model/network.h"
#include "model/tensor_update.h"

namespace slime::engine {

class RunningWeights {
 public:
  /// `network`, slices on `mesh`, and that outlive the object. `stages`: EngineConfig::stages_weights.
  RunningWeights(model::Network& network, const comm::Mesh& mesh, bool stages);
  RunningWeights(const RunningWeights&) = delete;
  RunningWeights& operator=(const RunningWeights&) = delete;

  /// A checkpoint with the configuration and the tensors of the running model; what differs is
  /// named. Any thread; the running weights are not touched.
  Expected<std::shared_ptr<model::Network>> load(const std::filesystem::path& directory) const;

  struct Changed {
    std::shared_ptr<model::Network> network;
    bool begins = false;  // with a copy of what runs, not with what the change before left
  };
  /// A copy of the running weights with some tensors changed. Whoever brings weights, one at a time.
  Expected<Changed> with(const model::TensorUpdate& update);
  /// It is what runs under this version; -1: it is not. Any thread.
  void note_copy(WeightVersion version) { copied_ = version; }

  /// What the engine is to copy, complete: those of `fresh`, which stay as they are until that is
  /// done, or second buffers with them in it. Those are written here, so the copy before is over. Where
  /// the running network has formats (model/matrix_storage.h) and `fresh` is plain, they are made here.
  /// Whoever brings weights, one at a time.
  Expected<FreshWeights> stage(model::Network& fresh);
  bool stages() const { return staged_.defined(); }

  /// EngineClient::check_weights(), of the engine's thread between two steps. `checksums`: of
  /// StepRunner::checksums_of().
  Expected<WeightChecksums> check(WeightCheck check, WeightChecksums checksums);
  /// EngineClient::read_weight(). The engine's thread.
  Expected<WeightRows> rows_of(const std::string& name, int64_t most_rows);
  /// An update exchanged the networks. The engine's thread.
  void compute_with(model::Network& network) { network_ = &network; }

  /// The engine's thread.
  model::Weights& running() { return network_.load()->weights(); }
  /// What updates change: those, or adapters beside them.
  model::Weights& changing() { return network_.load()->trained(); }
  void set_version(WeightVersion version) { version_ = version; }

  /// Any thread.
  WeightVersion version() const { return version_.load(); }

 private:
  std::atomic<model::Network*> network_;
  const comm::Mesh& mesh_;
  FreshWeights staged_;  // as Weights::buffers(); undefined without second ones
  std::atomic<WeightVersion> version_{0};
  std::optional<WeightChecksums> snapshot_;  // the engine's thread
  /// Of updates by some tensors, which come one after the other: the weights of version `copied_`, so that
  /// the next need not copy them again.
  std::shared_ptr<model::Network> copy_;
  std::atomic<WeightVersion> copied_{-1};
};

}  // namespace slime::engine
