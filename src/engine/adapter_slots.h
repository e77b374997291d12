#pragma once

/// Slots of adapters that rows of an engine choose among: the same on each of its ranks, which hold their slices.

#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "model/adapter_files.h"
#include "model/adapters.h"
#include "model/staged_reader.h"

namespace slime::engine {

/// Gives the network, which has no adapters yet, so many.
void open_adapter_slots(model::Network& network, int64_t count);

/// Reads adapters of directories of PEFT for a rank's slots. Keeps what would take long to make for each: the names of
/// the network's modules, and on a GPU locked memory of the host (model::StagedOptions: 32 MiB) and a stream.
class SlotReader final {
 public:
  /// Both outlive the object; the network has slots.
  SlotReader(model::Network& network, const comm::Mesh& mesh);

  /// This rank's slices, on the network's device, for all streams. Throws ConfigError for what is no adapter of the
  /// network, and for one that rows cannot choose. Any thread, one call at a time; changes nothing.
  std::shared_ptr<model::AdapterTensors> read(const std::string& directory);

 private:
  model::Network& network_;
  const comm::Mesh& mesh_;
  const at::Device device_;
  // From the first call on.
  std::optional<model::AdapterNames> names_;
  std::optional<model::StagedReader> staged_;
  std::optional<c10::Stream>
      stream_;  // beside steps and training, whose work copies would wait for
};

/// Change of slots by a load, on all ranks between the same two steps.
struct SlotChange {
  std::vector<int64_t> emptied;
  int64_t slot = 0;  // that gets an adapter
};
void change_slots(model::Adapters& adapters, const SlotChange& change,
                  const std::shared_ptr<model::AdapterTensors>& tensors);

}  // namespace slime::engine
