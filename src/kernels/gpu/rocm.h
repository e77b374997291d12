#pragma once

/// A probe for AMD GPUs and for what a program needs to use them: the kernel's driver, the HIP runtime, devices.
///
/// Nothing is opened but the runtime's library, which counts devices. Where a part is missing there is one sentence for it.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slime::kernels {

/// The state of AMD support, as README, help and the library's first line say it.
inline constexpr std::string_view kRocmLabel =
    "ROCm preview: builds for gfx942 and gfx950, kernels checked without hardware, not yet run on "
    "it";

/// hipError_t of hipGetDeviceCount, and the number of devices.
struct HipCount {
  int status = 0;
  int devices = 0;
};

/// Places that the probe looks at; tests have their own.
struct RocmPlaces {
  std::filesystem::path root = "/";  // of dev/kfd, sys/class/kfd, opt/rocm
  /// Value of a variable of the environment.
  std::function<std::optional<std::string>(const std::string& name)> variable;
  /// Loads the HIP runtime of this name and counts its devices. Nothing: there is no such library.
  std::function<std::optional<HipCount>(const std::string& library)> count;
};
RocmPlaces real_places();

/// Names of the runtime's library, the newest first.
std::vector<std::string> hip_runtimes();

struct Rocm {
  /// Sentences without a full stop, one for each part that is missing; empty: devices can be opened.
  std::vector<std::string> missing;
  std::string runtime;  // "libamdhip64.so.7"; empty: none
  std::string version;  // of ROCm, "7.2.0"; empty: unknown
  std::vector<std::string>
      gfx;              // of the driver's GPUs: "gfx942", with repetitions; whatever is visible
  int num_visible = 0;  // devices that the runtime shows this process

  /// Some part is there: worth a line of `slime doctor`.
  bool is_anything_there() const { return has_driver || !runtime.empty(); }
  bool has_driver = false;
};

Rocm probe_rocm(const RocmPlaces& places = real_places());

/// "gfx942" of the driver's number 90402, "gfx90a" of 90010.
std::string gfx_name(int target_version);

}  // namespace slime::kernels
