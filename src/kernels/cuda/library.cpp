#include "kernels/cuda/library.h"

#include <ATen/Context.h>
#include <c10/core/AllocatorConfig.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cstdlib>

#include "kernels/cuda/cuda_gpu.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/gpu/interface.h"

namespace slime::kernels::cuda {
namespace {

std::string why_no_device(cudaError_t status, int count) {
  if (status == cudaErrorInsufficientDriver)
    return "the NVIDIA driver of this machine is too old for CUDA 13 (driver 580 or later is "
           "needed)";
  if (status != cudaSuccess)
    return fmt::format("the CUDA libraries are here, but no GPU can be used: {}",
                       cudaGetErrorString(status));
  if (count == 0) return "the driver shows no GPU; is CUDA_VISIBLE_DEVICES set?";
  return {};
}

Gpu* open_device(std::string& problem) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  problem = why_no_device(status, count);
  if (!problem.empty()) return nullptr;
  if (!has_code_for_device()) {
    cudaDeviceProp properties{};
    cudaGetDeviceProperties(&properties, 0);
    problem = fmt::format(
        "{} (compute capability {}.{}) is not among the devices that {} was compiled for: {}; "
        "`./dev build` on this machine compiles for it (docs/gpu.md)",
        properties.name, properties.major, properties.minor, kLibraryName,
        SLIME_CUDA_ARCHITECTURES);
    return nullptr;
  }
  // What training leaves must go back to the driver before the engine maps its pages, also where a
  // small tensor lies in the middle of it. The user's own setting wins.
  if (std::getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr &&
      std::getenv("PYTORCH_ALLOC_CONF") == nullptr)
    c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
  at::globalContext().lazyInitDevice(at::kCUDA);
  return new CudaGpu(0);  // lives as long as the process
}

}  // namespace
}  // namespace slime::kernels::cuda

extern "C" __attribute__((visibility("default"))) const char* slime_cuda_interface() {
  return slime::kernels::interface_hash();
}

extern "C" __attribute__((visibility("default"))) slime::kernels::Gpu* slime_open_gpu(
    std::string& problem) {
  try {
    return slime::kernels::cuda::open_device(problem);
  } catch (const std::exception& error) {
    problem = error.what();
    return nullptr;
  }
}
