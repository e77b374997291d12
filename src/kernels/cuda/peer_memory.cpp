#include "kernels/cuda/peer_memory.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>
#include <stdexcept>

#include "core/error.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/torch_side.h"

namespace slime::kernels::cuda {
namespace {

/// What a handle's bytes are.
struct Handle {
  cudaIpcMemHandle_t memory;
  int64_t offset, bytes;  // of the tensor in it
};

/// Calls of this thread go to the device while it lives.
c10::DeviceGuard guard_of(int device) {
  return c10::DeviceGuard(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
}

/// An error that is only of this call must not be found by the next one.
void check_call(cudaError_t status, const char* what) {
  if (status != cudaSuccess) cudaGetLastError();
  check_cuda(status, what);
}

}  // namespace

std::string exported_handle(const Tensor& tensor) {
  check(tensor.is_cuda() && tensor.is_contiguous(), "what is exported is contiguous and on a GPU");
  const c10::DeviceGuard guard(tensor.device());
  void* begin = beginning_of_allocation(tensor.data_ptr());
  Handle handle{.memory = {},
                .offset = static_cast<char*>(tensor.data_ptr()) - static_cast<char*>(begin),
                .bytes = static_cast<int64_t>(tensor.nbytes())};
  check_call(cudaIpcGetMemHandle(&handle.memory, begin), "exporting memory");
  return {reinterpret_cast<const char*>(&handle), sizeof(handle)};
}

IpcPeerMemory::IpcPeerMemory(int device, const std::string& handle_bytes) : device_(device) {
  Handle handle{};
  if (handle_bytes.size() != sizeof(handle))
    throw std::runtime_error("these bytes are no handle of a GPU's memory");
  std::memcpy(&handle, handle_bytes.data(), sizeof(handle));
  if (handle.bytes <= 0 || handle.offset < 0)
    throw std::runtime_error("these bytes are no handle of a GPU's memory");
  offset_ = handle.offset;
  size_ = handle.bytes;
  const c10::DeviceGuard guard = guard_of(device);
  check_call(cudaIpcOpenMemHandle(&memory_, handle.memory, cudaIpcMemLazyEnablePeerAccess),
             "reaching the memory of another process's GPU");
  try {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    check_cuda(cudaEventCreate(&begins_), "making an event");
    check_cuda(cudaEventCreate(&ends_), "making an event");
  } catch (...) {
    close();
    throw;
  }
}

IpcPeerMemory::~IpcPeerMemory() { close(); }

void IpcPeerMemory::close() {
  const c10::DeviceGuard guard = guard_of(device_);
  if (ends_ != nullptr) cudaEventDestroy(ends_);
  if (begins_ != nullptr) cudaEventDestroy(begins_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
  cudaIpcCloseMemHandle(memory_);
}

double IpcPeerMemory::write(const Tensor& from) {
  check(from.is_contiguous(), "what goes to another device's memory is contiguous");
  check(static_cast<int64_t>(from.nbytes()) <= size_, "it fits into that memory");
  const c10::DeviceGuard guard = guard_of(device_);
  const cudaStream_t before = current_stream(device_);
  check_cuda(cudaEventRecord(begins_, before), "waiting for what is to be copied");
  check_cuda(cudaStreamWaitEvent(stream_, begins_), "waiting for what is to be copied");
  check_cuda(cudaEventRecord(begins_, stream_), "copying to another device");
  check_cuda(
      cudaMemcpyAsync(data(), from.const_data_ptr(), from.nbytes(), cudaMemcpyDefault, stream_),
      "copying to another device");
  check_cuda(cudaEventRecord(ends_, stream_), "copying to another device");
  // sync: the owner is told next that all of it is there
  check_cuda(cudaEventSynchronize(ends_), "copying to another device");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, begins_, ends_), "timing a copy");
  return milliseconds * 1e-3;
}

}  // namespace slime::kernels::cuda
