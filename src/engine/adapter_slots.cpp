#include "engine/adapter_slots.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include "core/error.h"
#include "engine/device_copies.h"

namespace slime::engine {

void open_adapter_slots(model::Network& network, int64_t count) {
  auto adapters = std::make_shared<model::Adapters>(network, count);
  adapters->choose_by_row();
  network.set_adapters(std::move(adapters));
}

SlotReader::SlotReader(model::Network& network, const comm::Mesh& mesh)
    : network_(network), mesh_(mesh), device_(network.weights().flat().device()) {}

std::shared_ptr<model::AdapterTensors> SlotReader::read(const std::string& directory) {
  if (!names_) names_.emplace(network_.config());
  const model::AdapterFile file(directory, network_.config(), *names_);
  if (!file.form().saved.empty()) {
    throw ConfigError(
        fmt::format("{}: holds whole modules ({}), which rows of one batch cannot choose among; "
                    "merge it, or serve "
                    "it alone with --adapter",
                    directory, file.form().saved.front()));
  }
  const auto make = [&] {
    return std::make_shared<model::AdapterTensors>(network_.config(), network_.weights(),
                                                   file.form(), mesh_);
  };
  if (device_.is_cpu()) {
    const auto tensors = make();
    file.read_into(*tensors);
    network_.adapters()->check_fits(*tensors);
    return tensors;
  }
  if (!stream_)
    stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
  const c10::StreamGuard guard(*stream_);
  const auto tensors = make();
  network_.adapters()->check_fits(*tensors);
  if (!staged_) staged_.emplace(device_);
  file.read_into(*tensors, *staged_);
  wait_for_copies(device_);
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
