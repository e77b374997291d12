#include "kernels/cuda/virtual_memory.h"

#include <ATen/ATen.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>

#include "core/error.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/torch_side.h"
#include "kernels/gpu/mapped_pieces.h"

namespace slime::kernels::cuda {
namespace {

/// Pages are taken in pieces of this size: one handle for all of it would need them in one piece.
constexpr int64_t kPieceBytes = int64_t{1} << 30;

CUresult unmap_pieces(CUdeviceptr begin, int64_t size) {
  return over_pieces(size, kPieceBytes, driver().takes_one_piece, CUDA_SUCCESS,
                     [begin](int64_t offset, int64_t bytes) {
                       return driver().unmap(begin + static_cast<size_t>(offset),
                                             static_cast<size_t>(bytes));
                     });
}

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
    cudaStreamSynchronize(current_stream(device_));
    unmap_pieces(begin_, size_);
    mapped_bytes_ -= size_;
  }
  driver().free_addresses(begin_, static_cast<size_t>(size_));
}

void VirtualMemory::unmap() {
  if (!is_mapped_) return;
  // sync: the pages must not go while a kernel uses them. Not all of the device: see GpuMemory.
  if (cudaStreamSynchronize(current_stream(device_)) != cudaSuccess)
    throw std::runtime_error("the GPU failed before its memory was given back");
  check_driver(unmap_pieces(begin_, size_), "cuMemUnmap");
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
      release_cached_memory();
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
    status = over_pieces(size_, kPieceBytes, driver().takes_one_piece, CUDA_SUCCESS,
                         [&](int64_t offset, int64_t bytes) {
                           return allow_access(begin_ + static_cast<size_t>(offset), bytes,
                                               properties.location);
                         });
  }
  if (status != CUDA_SUCCESS) {
    if (done > 0) unmap_pieces(begin_, done);
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
