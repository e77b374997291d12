#pragma once

/// Adapters on the ranks of an engine. Each rank reads its slices of a directory of PEFT itself, while steps run, and
/// answers; where all have them, rank 0 tells them into a slot between two steps.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "comm/mesh.h"
#include "engine/adapter_slots.h"
#include "engine/ranks/followers.h"
#include "model/network.h"

namespace slime::engine {

/// One adapter that all rows take, on rank 0 and on its followers (null: it is alone), before the engine begins.
/// Throws ConfigError with the first failure of a rank.
void load_adapter_on_ranks(model::Network& network, const std::filesystem::path& directory,
                           const comm::Mesh& mesh, Followers* followers);

// Of rank 0, for slots that rows choose among.

void tell_adapter_slots(Followers& followers, int64_t count);
/// Followers make their slices ready for tell_slot_change(). Any thread. Throws comm::GroupError when one is gone.
Expected<void> read_adapter_on_followers(Followers& followers,
                                         const std::filesystem::path& directory);
/// Between two steps.
void tell_slot_change(Followers& followers, const SlotChange& change);

/// The same orders at a follower.
class FollowingAdapters final {
 public:
  /// The network and the mesh outlive the object.
  void open(model::Network& network, const comm::Mesh& mesh, std::string_view frame);
  /// On a thread beside steps.
  void read(const std::string& directory);
  void change(model::Network& network, std::string_view frame);

 private:
  std::optional<SlotReader> reader_;             // from open() on
  std::shared_ptr<model::AdapterTensors> read_;  // for the next change
};

}  // namespace slime::engine
