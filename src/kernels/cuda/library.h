#pragma once

/// Interface by which the program loads libslime_cuda.so. The library exports two C functions; the
/// program asks for the interface first and opens a GPU only when it is its own
/// (kernels/gpu/interface.h).

#include <string>

namespace slime::kernels {
class Gpu;
}

namespace slime::kernels::cuda {

inline constexpr const char* kLibraryName = "libslime_cuda.so";

/// kernels::interface_hash() of the library.
inline constexpr const char* kInterfaceFunction = "slime_cuda_interface";
using InterfaceFunction = const char*();

/// Opens device 0 of those that are visible. Null, with a sentence in `problem`, when it cannot.
/// The result lives as long as the process.
inline constexpr const char* kOpenFunction = "slime_open_gpu";
using OpenFunction = Gpu*(std::string& problem);

}  // namespace slime::kernels::cuda
