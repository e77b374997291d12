#pragma once

/// Measured limits of the GPU: a plain copy and one large matrix product, against which benchmarks
/// are held.

namespace slime::kernels {

struct GpuLimits {
  double copy_bytes_per_second = 0;  // read and written bytes of a large device-to-device copy
  double flops_per_second = 0;       // an 8192-cubed bfloat16 product on random numbers
};

/// Takes a fifth of a second and 9 GB, both given back. Waits for the GPU.
GpuLimits measure_gpu_limits();

}  // namespace slime::kernels
