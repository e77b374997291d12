#include "engine/served_adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "comm/rank_group.h"
#include "core/error.h"
#include "engine/adapter_slots.h"
#include "engine/device_copies.h"
#include "engine/engine.h"
#include "engine/error_text.h"
#include "engine/ranks/rank_adapters.h"

namespace slime::engine {

ServedAdapters::ServedAdapters(model::Network& network, int64_t most, const comm::Mesh& mesh,
                               Followers* followers)
    : network_(network),
      followers_(followers),
      most_(static_cast<size_t>(most)),
      reader_(network, mesh),
      slots_(2 * most_) {
  const auto count = static_cast<int64_t>(slots_.size());
  open_adapter_slots(network, count);
  if (followers != nullptr) tell_adapter_slots(*followers, count);
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

Expected<std::shared_ptr<model::AdapterTensors>> ServedAdapters::read(const std::string& path) {
  try {
    auto tensors = reader_.read(path);
    if (followers_ == nullptr) return tensors;
    const Expected<void> elsewhere = read_adapter_on_followers(*followers_, path);
    if (!elsewhere) return tl::make_unexpected(elsewhere.error());
    return tensors;
  } catch (const BugError&) {
    throw;
  } catch (const std::exception& error) {
    return failure(text_of(error));
  }
}

void ServedAdapters::change_with(Engine& engine) {
  change_at([&engine](std::function<void()> body) { return engine.run_exclusive(std::move(body)); },
            [&engine](const std::function<void()>& body) { return engine.run_beside_steps(body); });
}

void ServedAdapters::change_at(Moment between_steps, Moment beside_steps) {
  between_steps_ = std::move(between_steps);
  beside_steps_ = std::move(beside_steps);
}

SlotChange ServedAdapters::change_into(int64_t slot) const {
  SlotChange change{.emptied = {}, .slot = slot};
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto other = static_cast<int64_t>(i);
    if (slots_[i].expired() && network_.adapters()->at(other)) change.emptied.push_back(other);
  }
  return change;
}

bool ServedAdapters::change(const SlotChange& change,
                            const std::shared_ptr<model::AdapterTensors>& tensors) {
  model::Adapters& adapters = *network_.adapters();
  const auto body = [&] {
    change_slots(adapters, change, tensors);
    if (followers_ != nullptr) tell_slot_change(*followers_, change);
  };
  const bool is_beside =
      adapters.is_in_tables(*tensors) && std::ranges::all_of(change.emptied, [&](int64_t slot) {
        return adapters.is_in_tables(*adapters.at(slot));
      });
  const Moment& moment = is_beside ? beside_steps_ : between_steps_;
  if (moment) return moment(body);
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
  const auto tensors = read(path);
  if (!tensors) return tl::make_unexpected(tensors.error());
  auto loaded = std::make_shared<LoadedAdapter>();
  loaded->name = name;
  loaded->path = path;
  loaded->is_pinned = is_pinned;
  return take(std::move(loaded), *tensors);
}

Expected<ServedAdapters::Handle> ServedAdapters::put(
    const std::string& name, std::shared_ptr<model::AdapterTensors> tensors) {
  const std::lock_guard lock(loads_);
  check(followers_ == nullptr, "an adapter of a trainer in this process is whole");
  try {
    network_.adapters()->check_fits(*tensors);
  } catch (const ConfigError& error) {
    return failure(error.what());
  }
  wait_for_copies(network_.weights().flat().device());
  auto loaded = std::make_shared<LoadedAdapter>();
  loaded->name = name;
  loaded->is_pinned = true;
  return take(std::move(loaded), tensors);
}

Expected<ServedAdapters::Handle> ServedAdapters::take(
    std::shared_ptr<LoadedAdapter> loaded, const std::shared_ptr<model::AdapterTensors>& tensors) {
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
  try {
    if (!change(change_into(slot), tensors)) return failure("the engine is shutting down");
  } catch (const comm::GroupError& error) {
    return failure(error.what());
  }
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
