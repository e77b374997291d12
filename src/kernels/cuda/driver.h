#pragma once

/// The driver's calls for addresses and the pages behind them.

#include <cuda.h>

#include <cstdint>

#include "core/tensor.h"

namespace slime::kernels::cuda {

struct Driver {
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_addresses = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
  /// Mappings are unmapped, and made accessible, one by one (kernels/gpu/mapped_pieces.h).
  bool takes_one_piece = false;
};

/// Of driver_table.cpp, or kernels/hip/driver_table.cpp. Its library is in the process: the runtime loads it when it opens a GPU. Throws std::runtime_error
/// for a driver that lacks one.
const Driver& driver();

/// Throws std::runtime_error that begins with `what`.
void check_driver(CUresult status, const char* what);

/// Pages of this GPU.
CUmemAllocationProp on_device(int device);
/// `bytes` rounded up to whole ones.
int64_t whole_pages(int64_t bytes, const CUmemAllocationProp& properties);
CUresult allow_access(CUdeviceptr begin, int64_t bytes, const CUmemLocation& location);

/// A tensor over addresses of [begin, begin + bytes), which it does not own.
Tensor view_of(CUdeviceptr begin, int64_t bytes, int device, int64_t offset_bytes,
               at::IntArrayRef sizes, at::ScalarType type);

}  // namespace slime::kernels::cuda
