#include "engine/adapter_slots.h"

#include <fmt/format.h>

#include "core/error.h"
#include "engine/device_copies.h"
#include "model/adapter_files.h"

namespace slime::engine {

void open_adapter_slots(model::Network& network, int64_t count) {
  auto adapters = std::make_shared<model::Adapters>(network, count);
  adapters->choose_by_row();
  network.set_adapters(std::move(adapters));
}

std::shared_ptr<model::AdapterTensors> read_slot_adapter(model::Network& network,
                                                         const comm::Mesh& mesh,
                                                         const std::string& directory) {
  const model::AdapterFile file(directory, network.config());
  if (!file.form().saved.empty()) {
    throw ConfigError(
        fmt::format("{}: holds whole modules ({}), which rows of one batch cannot choose among; "
                    "merge it, or serve "
                    "it alone with --adapter",
                    directory, file.form().saved.front()));
  }
  auto tensors = std::make_shared<model::AdapterTensors>(network.config(), network.weights(),
                                                         file.form(), mesh);
  file.read_into(*tensors);
  network.adapters()->check_fits(*tensors);
  wait_for_copies(network.weights().flat().device());
  return tensors;
}

void change_slots(model::Adapters& adapters, const SlotChange& change,
                  const std::shared_ptr<model::AdapterTensors>& tensors) {
  std::vector<model::Adapters::Change> changes;
  for (const int64_t slot : change.emptied) changes.push_back({slot, nullptr});
  changes.push_back({change.slot, tensors});
  adapters.put(changes);
}

}  // namespace slime::engine
