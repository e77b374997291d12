#pragma once

/// Slots of adapters that rows of an engine choose among: the same on each of its ranks, which hold their slices.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "model/adapters.h"

namespace slime::engine {

/// Gives the network, which has no adapters yet, so many.
void open_adapter_slots(model::Network& network, int64_t count);

/// This rank's slices of the adapter in a directory of PEFT, on the network's device. Throws ConfigError for what is no
/// adapter of the network, and for one that rows cannot choose. Any thread; changes nothing.
std::shared_ptr<model::AdapterTensors> read_slot_adapter(model::Network& network,
                                                         const comm::Mesh& mesh,
                                                         const std::string& directory);

/// Change of slots by a load, on all ranks between the same two steps.
struct SlotChange {
  std::vector<int64_t> emptied;
  int64_t slot = 0;  // that gets an adapter
};
void change_slots(model::Adapters& adapters, const SlotChange& change,
                  const std::shared_ptr<model::AdapterTensors>& tensors);

}  // namespace slime::engine
