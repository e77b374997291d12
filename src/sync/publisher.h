#pragma once

/// Publisher of new weights to engines in other processes: all of them or the changes, over the
/// engines' connections or through a folder.
///
///                 kConnection                          kDisk
///   all           the network's flat buffer            FOLDER/weight_v000007: a model directory
///   what changed  a WeightDelta                        FOLDER/weight_v000007: a delta in a file
///
/// A folder appears whole or not at all. Each publication has a number that no other has; what changed is
/// for engines that have the one before, and the others get all over their connections.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "engine/client.h"
#include "model/network.h"
#include "model/weight_delta.h"

namespace slime::sync {

struct PublisherConfig {
  bool sends_changes = false;
  model::DeltaEncoding encoding = model::DeltaEncoding::kXor;
  std::filesystem::path folder;  // empty: over the engines' connections
  bool keeps_files = false;
  /// A version's folder is complete; before engines read it.
  std::function<void(const std::filesystem::path&)> on_written = {};
};

/// Weights on their way. Outlives the update that it is the source of.
struct Publication {
  uint64_t number = 0;
  WeightVersion version = 0;
  model::Network* network = nullptr;
  std::optional<model::WeightDelta> delta;
  std::filesystem::path folder;  // empty: there is none
  int64_t file_bytes = 0;

  engine::WeightSource source() const;
  /// Of the elements of all tensors, that changed; 1 where nobody counted.
  double density() const;
};

class Publisher final {
 public:
  explicit Publisher(PublisherConfig config) : config_(std::move(config)) {}

  bool sends_changes() const { return config_.sends_changes; }
  /// Of the last that engines have; 0 before.
  uint64_t number() const { return published_; }

  /// Engines have begun with these weights.
  uint64_t begin() { return published_ = ++num_made_; }

  /// The weights of `network`, which stay as they are until the publication is over; `before_N`: the flat
  /// buffer of publication number(), undefined where nobody has that. Throws ConfigError when the
  /// folder cannot be written.
  Publication prepare(model::Network& network, WeightVersion version, const Tensor& before_N);
  /// Engines have them.
  void end(const Publication& publication);

 private:
  void write(Publication& publication) const;

  const PublisherConfig config_;
  uint64_t num_made_ = 0;
  uint64_t published_ = 0;
  WeightVersion published_version_ = 0;
};

}  // namespace slime::sync
