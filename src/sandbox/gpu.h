#pragma once

/// The files of one NVIDIA GPU that a sandbox shows: device files to read and write, and the folder of
/// the driver's libraries where that is not below /usr, which every sandbox has.
///
///   /dev/nvidiactl     the driver's door
///   /dev/nvidia-uvm    its memory
///   /dev/nvidia3       the chosen GPU; the others have no file there, so CUDA counts one device
///
/// Code inside talks to the driver, a large part of the kernel: docs/sandbox.md says what that weakens.

#include <filesystem>
#include <string>
#include <vector>

namespace slime::sandbox {

inline constexpr int kLastGpu = 254;  // a minor number below that of nvidiactl

/// Folders in which the files are looked for. Tests give folders of their own.
struct GpuPlaces {
  std::filesystem::path devices = "/dev";
  /// Searched in this order for libcuda.so.1.
  std::vector<std::filesystem::path> libraries = {
      "/usr/lib/x86_64-linux-gnu",  "/lib/x86_64-linux-gnu", "/usr/lib64",
      "/usr/local/nvidia/lib64",    "/usr/lib/wsl/lib",      "/run/opengl-driver/lib",
      "/usr/local/cuda/compat/lib", "/usr/local/cuda/lib64",
  };
};

struct GpuFiles {
  std::vector<std::filesystem::path> devices;
  std::filesystem::path libraries;       // the folder that has libcuda.so.1
  std::vector<std::string> environment;  // "NAME=value", beside the usual ones
};

/// `number` is N of /dev/nvidiaN: the driver's minor number, which `nvidia-smi -q` calls so. Throws
/// ConfigError where a file lacks; the message names the GPUs that are there.
GpuFiles files_of_gpu(int number, const GpuPlaces& places = {});

}  // namespace slime::sandbox
