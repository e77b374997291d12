#pragma once

/// Adapters that requests of an engine may name, beside each other in one batch.
///
/// A name is loaded under a number that no other has, also when it is loaded again: the number is part of
/// prefix keys, so keys and values of one version serve no other. A request keeps the version that it began
/// with. Where there is no room the least recently used one goes that is neither pinned nor in use.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/expected.h"
#include "engine/adapter_slots.h"
#include "model/adapters.h"

namespace slime::engine {

class Engine;
class Followers;

struct LoadedAdapter {
  std::string name;
  std::string path;  // as it was given
  uint64_t number = 0;
  int64_t slot = 0;
  bool is_pinned = false;
  mutable std::atomic<uint64_t> last_use = 0;
};

/// -1: no adapter.
inline int64_t slot_of(const std::shared_ptr<const LoadedAdapter>& adapter) {
  return adapter == nullptr ? -1 : adapter->slot;
}

class ServedAdapters {
 public:
  using Handle = std::shared_ptr<const LoadedAdapter>;
  /// Calls it at a moment of the engine; false: the engine ends.
  using Moment = std::function<bool(std::function<void()>)>;

  /// Gives `network`, which outlives it, slots for `most` adapters and for versions that requests still use. Of an
  /// engine of several ranks: its mesh, and the others, which outlive it too.
  ServedAdapters(model::Network& network, int64_t most,
                 const comm::Mesh& mesh = comm::Mesh::single(), Followers* followers = nullptr);

  /// Before the first load() of a running engine; until then nobody computes. Adapters that steps of other rows never
  /// read come and go beside those. Where ranks grow, the next launch waits once for steps in flight.
  void change_with(Engine& engine);
  /// The same: between two steps, and while none is launched.
  void change_at(Moment between_steps, Moment beside_steps);

  /// Any thread. Null: no adapter has this name.
  Handle find(const std::string& name) const;
  std::vector<Handle> all() const;
  /// "a, b", or that there are none: for messages.
  std::string names() const;

  /// Reads a directory of PEFT. A name that is loaded is refused, or (`replaces`) means the new one from then
  /// on. Any thread but the engine's; the failure says what is wrong with the directory, on whichever rank.
  Expected<Handle> load(const std::string& name, const std::string& path, bool is_pinned,
                        bool replaces);
  /// The same with tensors for this network, of a trainer in this process. A name that is loaded means them
  /// from then on. They stay as they are. Of an engine of one rank.
  Expected<Handle> put(const std::string& name, std::shared_ptr<model::AdapterTensors> tensors);
  /// New requests do not find it any more; those that run keep it.
  Expected<void> unload(const std::string& name);

 private:
  /// Of a directory, on all ranks.
  Expected<std::shared_ptr<model::AdapterTensors>> read(const std::string& path);
  /// With loads_ held.
  Expected<Handle> take(std::shared_ptr<LoadedAdapter> loaded,
                        const std::shared_ptr<model::AdapterTensors>& tensors);
  bool make_room(const std::string& name);
  int64_t free_slot() const;
  /// What is in slots that no request and no step takes any more goes, and the tensors come.
  SlotChange change_into(int64_t slot) const;
  bool change(const SlotChange& change, const std::shared_ptr<model::AdapterTensors>& tensors);

  model::Network& network_;
  Followers* const followers_;  // null: there is one rank
  const size_t most_;
  Moment between_steps_, beside_steps_;
  std::mutex loads_;  // one at a time
  SlotReader reader_;
  uint64_t num_loaded_ = 0;
  mutable std::mutex mutex_;
  std::map<std::string, Handle> by_name_;                  // guarded by mutex_
  std::vector<std::weak_ptr<const LoadedAdapter>> slots_;  // of loads
  mutable std::atomic<uint64_t> num_uses_ = 0;
};

}  // namespace slime::engine
