#pragma once

/// CUDA_VISIBLE_DEVICES of a worker: one GPU of its host, which the worker sees as its first. A
/// process of its own for each device needs no index anywhere else, and makes a context on no other
/// device.
///
/// Devices are counted as this process sees them, so what the user's CUDA_VISIBLE_DEVICES hides stays
/// hidden, and its order is kept. Who gets which: cluster/placement.h.

#include <optional>
#include <string>
#include <string_view>

namespace slime::cluster {

inline constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";
/// The same of AMD's GPUs, whose runtime prefers it to the one above.
inline constexpr const char* kVisibleHipDevices = "HIP_VISIBLE_DEVICES";

/// Whether that one counts here: it is set, and there is AMD's driver.
bool has_visible_hip_devices();

/// The value of CUDA_VISIBLE_DEVICES with which a child sees device `index` of this process alone.
/// `own`: this process's value; nothing where it has none. Its entries may be indices or UUIDs. Throws
/// BugError when there are not so many.
std::string visible_device(std::optional<std::string_view> own, int index);

/// The same of this process's environment.
std::string visible_device(int index);

/// The same for `count` devices from `first` on.
std::string visible_devices(std::optional<std::string_view> own, int first, int count);
std::string visible_devices(int first, int count);

}  // namespace slime::cluster
