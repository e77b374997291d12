#pragma once

/// The weights that the engine computes from, and the version that they are called by.
///
/// New ones are read and compared on the thread of whoever brings them; the engine stands still
/// only while they are copied. What becomes of requests and of keys and values then:
/// StepPipeline::weights_changed.

#include <atomic>
#include <filesystem>
#include <memory>

#include "core/expected.h"
#include "core/sample.h"
#include "model/network.h"

namespace slime::engine {

class RunningWeights {
 public:
  /// `network` outlives the object.
  explicit RunningWeights(model::Network& network) : network_(network) {}
  RunningWeights(const RunningWeights&) = delete;
  RunningWeights& operator=(const RunningWeights&) = delete;

  /// A checkpoint with the configuration and the tensors of the running model; what differs is
  /// named. Any thread; the running weights are not touched.
  Expected<std::shared_ptr<model::Network>> load(const std::filesystem::path& directory) const;

  // The engine's thread, with no step in flight.

  void copy_from(model::Network& fresh);
  void set_version(WeightVersion version) { version_ = version; }

  /// Any thread.
  WeightVersion version() const { return version_.load(); }

 private:
  model::Network& network_;
  std::atomic<WeightVersion> version_{0};
};

}  // namespace slime::engine
