#pragma once

/// How the program and libslime_cuda.so find each other. The library exports one C function.

#include <string>

namespace slime::kernels {
class Gpu;
}

namespace slime::kernels::cuda {

inline constexpr const char* kLibraryName = "libslime_cuda.so";
inline constexpr const char* kOpenFunction = "slime_open_gpu";
/// Raised with every change of kernels/gpu.h or kernels/device.h: both sides must agree.
inline constexpr int kInterfaceVersion = 3;

/// Opens device 0 of those that are visible. Null, with a sentence in `problem`, when it cannot.
/// The result lives as long as the process.
using OpenFunction = Gpu*(int interface_version, std::string& problem);

}  // namespace slime::kernels::cuda
