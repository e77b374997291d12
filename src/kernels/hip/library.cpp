#include "kernels/cuda/library.h"

#include <ATen/Context.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include "kernels/cuda/cuda_gpu.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/gpu/interface.h"

namespace slime::kernels::cuda {
namespace {

/// Empty where a device can be opened.
std::string why_no_device() {
#ifdef SLIME_TORCH_STUBS
  return "libslime_hip.so was compiled against stand-ins for the headers of LibTorch's ROCm side, "
         "to check it: with a torch "
         "for ROCm, SLIME_HIP_TORCH=.../site-packages/torch ./dev hip makes one that can run "
         "(docs/rocm.md)";
#else
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess)
    return fmt::format("no AMD GPU can be used: {}", cudaGetErrorString(status));
  if (count == 0) return "the driver shows no AMD GPU; is HIP_VISIBLE_DEVICES set?";
  if (has_code_for_device()) return {};
  cudaDeviceProp properties{};
  check_hip(cudaGetDeviceProperties(&properties, 0), "hipGetDeviceProperties");
  return fmt::format("{} ({}) is not among the devices that libslime_hip.so was compiled for: {}",
                     properties.name, properties.gcnArchName, SLIME_HIP_ARCHITECTURES);
#endif
}

}  // namespace
}  // namespace slime::kernels::cuda

extern "C" __attribute__((visibility("default"))) const char* slime_cuda_interface() {
  return slime::kernels::interface_hash();
}

extern "C" __attribute__((visibility("default"))) slime::kernels::Gpu* slime_open_gpu(
    std::string& problem) {
  try {
    problem = slime::kernels::cuda::why_no_device();
    if (!problem.empty()) return nullptr;
    at::globalContext().lazyInitDevice(at::kCUDA);  // ROCm's devices have this name in LibTorch
    return new slime::kernels::cuda::CudaGpu(0);    // lives as long as the process
  } catch (const std::exception& error) {
    problem = error.what();
    return nullptr;
  }
}
