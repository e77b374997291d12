#include "engine/served_adapters.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "engine/error_text.h"
#include "model/adapter_files.h"

namespace slime::engine {
namespace {

/// What this thread has on its way to a GPU: the engine's stream reads it next.
void wait_for_copies(const at::Device& device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

}  // namespace

ServedAdapters::ServedAdapters(model::Network& network, int64_t most)
    : network_(network), most_(static_cast<size_t>(most)), slots_(2 * most_) {
  auto adapters = std::make_shared<model::Adapters>(network, static_cast<int64_t>(slots_.size()));
  adapters->choose_by_row();
  network.set_adapters(std::move(adapters));
}

ServedAdapters::Handle ServedAdapters::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return nullptr;
  found->second->last_use = ++num_uses_;
  return found->second;
}

std::vector<ServedAdapters::Handle> ServedAdapters::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Handle> all;
  for (const auto& [name, handle] : by_name_) all.push_back(handle);
  return all;
}

std::string ServedAdapters::names() const {
  std::vector<std::string> names;
  for (const Handle& handle : all()) names.push_back(handle->name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::shared_ptr<model::AdapterTensors> ServedAdapters::read(const std::string& path) const {
  const model::AdapterFile file(path, network_.config());
  if (!file.form().saved.empty()) {
    throw ConfigError(
        fmt::format("{}: holds whole modules ({}), which rows of one batch cannot choose among; "
                    "merge it, or serve "
                    "it alone with --adapter",
                    path, file.form().saved.front()));
  }
  auto tensors = std::make_shared<model::AdapterTensors>(network_.config(), network_.weights(),
                                                         file.form(), comm::Mesh::single());
  file.read_into(*tensors);
  return tensors;
}

bool ServedAdapters::between(std::function<void()> body) const {
  if (between_) return between_(std::move(body));
  body();
  return true;
}

/// For one more name. The evicted adapter is in no request, so its slot becomes free.
bool ServedAdapters::make_room(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (by_name_.contains(name) || by_name_.size() < most_) return true;
  auto oldest = by_name_.end();
  for (auto each = by_name_.begin(); each != by_name_.end(); ++each) {
    if (each->second->is_pinned || each->second.use_count() > 1) continue;
    if (oldest == by_name_.end() || each->second->last_use < oldest->second->last_use)
      oldest = each;
  }
  if (oldest == by_name_.end()) return false;
  by_name_.erase(oldest);
  return true;
}

int64_t ServedAdapters::free_slot() const {
  const auto found = std::ranges::find_if(slots_, [](const auto& slot) { return slot.expired(); });
  return found == slots_.end() ? -1 : found - slots_.begin();
}

Expected<ServedAdapters::Handle> ServedAdapters::load(const std::string& name,
                                                      const std::string& path, bool is_pinned,
                                                      bool replaces) {
  const std::lock_guard lock(loads_);
  if (name.empty()) return failure("an adapter has a name");
  if (!replaces && find(name) != nullptr) {
    return failure(
        fmt::format("an adapter {} is loaded; unload it first, or load it in its place "
                    "(load_inplace)",
                    name));
  }
  std::shared_ptr<model::AdapterTensors> tensors;
  try {
    tensors = read(path);
  } catch (const BugError&) {
    throw;
  } catch (const std::exception& error) {
    return failure(text_of(error));
  }
  auto loaded = std::make_shared<LoadedAdapter>();
  loaded->name = name;
  loaded->path = path;
  loaded->is_pinned = is_pinned;
  return take(std::move(loaded), tensors);
}

Expected<ServedAdapters::Handle> ServedAdapters::put(
    const std::string& name, std::shared_ptr<model::AdapterTensors> tensors) {
  const std::lock_guard lock(loads_);
  auto loaded = std::make_shared<LoadedAdapter>();
  loaded->name = name;
  loaded->is_pinned = true;
  return take(std::move(loaded), tensors);
}

Expected<ServedAdapters::Handle> ServedAdapters::take(
    std::shared_ptr<LoadedAdapter> loaded, const std::shared_ptr<model::AdapterTensors>& tensors) {
  try {
    network_.adapters()->check_fits(*tensors);
  } catch (const ConfigError& error) {
    return failure(error.what());
  }
  if (!make_room(loaded->name)) {
    return failure(
        fmt::format("{} adapters are loaded, and each is pinned or in use: unload one, or "
                    "start the server with a larger --max-loaded-loras",
                    most_));
  }
  const int64_t slot = free_slot();
  if (slot < 0)
    return failure("requests still use all versions of adapters that there is room for; try again");
  loaded->number = ++num_loaded_;
  loaded->slot = slot;
  loaded->last_use = ++num_uses_;
  wait_for_copies(network_.weights().flat().device());
  const bool is_done = between([&] {
    for (size_t i = 0; i < slots_.size(); ++i) {
      const auto other = static_cast<int64_t>(i);
      if (slots_[i].expired() && network_.adapters()->at(other))
        network_.adapters()->put(other, nullptr);
    }
    network_.adapters()->put(slot, tensors);
  });
  if (!is_done) return failure("the engine is shutting down");
  const std::lock_guard table(mutex_);
  slots_[static_cast<size_t>(slot)] = loaded;
  by_name_[loaded->name] = loaded;
  return Handle(loaded);
}

Expected<void> ServedAdapters::unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (by_name_.erase(name) == 0) return failure(fmt::format("no adapter {} is loaded", name));
  return {};
}

}  // namespace slime::engine
