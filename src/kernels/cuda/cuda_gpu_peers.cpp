#include <ATen/ATen.h>

#include "kernels/cuda/cuda_gpu.h"
#include "kernels/cuda/peers/cuda_peer_collectives.h"

namespace slime::kernels::cuda {

std::unique_ptr<PeerCollectives> CudaGpu::make_peers(const PeerCollectivesConfig& config) {
  Tensor memory;
  make_exportable([&] {
    memory =
        at::zeros({CudaPeerCollectives::memory_bytes(config.size)},
                  at::TensorOptions(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index_)))
                      .dtype(at::kByte));
  });
  return std::make_unique<CudaPeerCollectives>(index_, config, std::move(memory));
}

}  // namespace slime::kernels::cuda
