#include "kernels/cuda/virtual_memory.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>

#include "core/error.h"
#include "kernels/cuda/driver.h"

namespace slime::kernels::cuda {
namespace {

/// Pages are taken in pieces of this size: one handle for all of it would need them in one piece.
constexpr int64_t kPieceBytes = int64_t{1} << 30;

}  // namespace

VirtualMemory::VirtualMemory(int device, int64_t bytes, std::atomic<int64_t>& mapped_bytes)
    : device_(device), mapped_bytes_(mapped_bytes) {
  check(bytes > 0, "reserved memory has a size");
  size_ = whole_pages(bytes, on_device(device));
  check_driver(driver().reserve(&begin_, static_cast<size_t>(size_), 0, 0, 0),
               "cuMemAddressReserve");
  try {
    map();
  } catch (...) {
    driver().free_addresses(begin_, static_cast<size_t>(size_));
    throw;
  }
}

VirtualMemory::~VirtualMemory() {
  if (is_mapped_) {
    cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_)));
    driver().unmap(begin_, static_cast<size_t>(size_));
    mapped_bytes_ -= size_;
  }
  driver().free_addresses(begin_, static_cast<size_t>(size_));
}

void VirtualMemory::unmap() {
  if (!is_mapped_) return;
  // sync: the pages must not go while a kernel uses them. Not all of the device: see GpuMemory.
  if (cudaStreamSynchronize(
          c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_))) != cudaSuccess)
    throw std::runtime_error("the GPU failed before its memory was given back");
  check_driver(driver().unmap(begin_, static_cast<size_t>(size_)), "cuMemUnmap");
  is_mapped_ = false;
  mapped_bytes_ -= size_;
}

void VirtualMemory::map() {
  if (is_mapped_) return;
  const CUmemAllocationProp properties = on_device(device_);
  int64_t done = 0;
  CUresult status = CUDA_SUCCESS;
  bool has_released = false;
  while (done < size_ && status == CUDA_SUCCESS) {
    const auto piece = static_cast<size_t>(std::min(kPieceBytes, size_ - done));
    CUmemGenericAllocationHandle handle = 0;
    status = driver().create(&handle, piece, &properties, 0);
    if (status == CUDA_ERROR_OUT_OF_MEMORY && !has_released) {
      // LibTorch's allocator may hold the pages, unused.
      c10::cuda::CUDACachingAllocator::emptyCache();
      has_released = true;
      status = CUDA_SUCCESS;
      continue;
    }
    if (status != CUDA_SUCCESS) break;
    status = driver().map(begin_ + static_cast<size_t>(done), piece, 0, handle, 0);
    driver().release(handle);  // the mapping keeps the pages
    if (status == CUDA_SUCCESS) done += static_cast<int64_t>(piece);
  }
  if (status == CUDA_SUCCESS) {
    status = allow_access(begin_, size_, properties.location);
  }
  if (status != CUDA_SUCCESS) {
    if (done > 0) driver().unmap(begin_, static_cast<size_t>(done));
    TORCH_CHECK_WITH(OutOfMemoryError, status != CUDA_ERROR_OUT_OF_MEMORY,
                     "CUDA out of memory: ", size_, " bytes were to be mapped, ", done,
                     " could be");
    check_driver(status, "mapping memory");
  }
  is_mapped_ = true;
  mapped_bytes_ += size_;
}

Tensor VirtualMemory::view(int64_t offset_bytes, at::IntArrayRef sizes, at::ScalarType type) const {
  return view_of(begin_, size_, device_, offset_bytes, sizes, type);
}

}  // namespace slime::kernels::cuda
