#pragma once

/// Which GPU of this host a worker sees: one, which it calls its first. A process of its own for each
/// device needs no index anywhere else, and makes a context on no other device.
///
/// Devices are counted as this process sees them, so what the user's CUDA_VISIBLE_DEVICES hides stays
/// hidden, and its order is kept. Trainer ranks have the first ones, engines those behind them.

#include <optional>
#include <string>
#include <string_view>

namespace slime::cluster {

inline constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";

/// A worker's device among those that the controller sees. Rank 0 is the controller's own process, and
/// computes on the first one.
constexpr int device_of_rank(int rank) { return rank; }
/// The first one of an engine.
constexpr int device_of_engine(int num_ranks, int engine, int devices_per_engine = 1) {
  return num_ranks + engine * devices_per_engine;
}

/// The value of CUDA_VISIBLE_DEVICES with which a child sees device `index` of this process alone.
/// `own`: this process's value; nothing where it has none. Its entries may be indices or UUIDs. Throws
/// BugError when there are not so many.
std::string visible_device(std::optional<std::string_view> own, int index);

/// The same of this process's environment.
std::string visible_device(int index);

}  // namespace slime::cluster
