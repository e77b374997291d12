#include "kernels/cuda/shared_memory.h"

#include <ATen/ATen.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <unistd.h>

#include "core/error.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/torch_side.h"

namespace slime::kernels::cuda {

SharedMemory::SharedMemory(int device, int64_t bytes, std::atomic<int64_t>& mapped_bytes)
    : device_(device), mapped_bytes_(mapped_bytes) {
  check(bytes > 0, "shared memory has a size");
  CUmemAllocationProp properties = on_device(device);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_ = whole_pages(bytes, properties);
  const auto size = static_cast<size_t>(size_);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult status = driver().create(&handle, size, &properties, 0);
  TORCH_CHECK_WITH(OutOfMemoryError, status != CUDA_ERROR_OUT_OF_MEMORY,
                   "CUDA out of memory: ", size_, " bytes were to be shared with a plug-in host");
  check_driver(status, "memory to be shared");
  CUresult done =
      driver().export_handle(&descriptor_, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  const bool is_exported = done == CUDA_SUCCESS;
  if (is_exported) done = driver().reserve(&begin_, size, 0, 0, 0);
  const bool is_reserved = is_exported && done == CUDA_SUCCESS;
  if (is_reserved) done = driver().map(begin_, size, 0, handle, 0);
  const bool is_mapped = is_reserved && done == CUDA_SUCCESS;
  driver().release(handle);  // the mapping and the descriptor keep the pages
  if (is_mapped) done = allow_access(begin_, size_, properties.location);
  if (done != CUDA_SUCCESS) {
    if (is_mapped) driver().unmap(begin_, size);
    if (is_reserved) driver().free_addresses(begin_, size);
    if (is_exported) ::close(descriptor_);
    check_driver(done, "memory to be shared");
  }
  ::fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
  mapped_bytes_ += size_;
}

SharedMemory::~SharedMemory() {
  // sync: the pages must not go while a kernel uses them.
  cudaStreamSynchronize(current_stream(device_));
  driver().unmap(begin_, static_cast<size_t>(size_));
  driver().free_addresses(begin_, static_cast<size_t>(size_));
  ::close(descriptor_);
  mapped_bytes_ -= size_;
}

Tensor SharedMemory::view(int64_t offset_bytes, at::IntArrayRef sizes, at::ScalarType type) const {
  return view_of(begin_, size_, device_, offset_bytes, sizes, type);
}

}  // namespace slime::kernels::cuda
