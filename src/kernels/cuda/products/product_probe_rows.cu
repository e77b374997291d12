#include <algorithm>

#include "kernels/cuda/products/product_probe.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ uint32_t mixed(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352dU;
  x = (x ^ x >> 15) * 0x846ca68bU;
  return x ^ x >> 16;
}

/// Seven bits and a sign, times a power of two of 2^-7 to 2^0: exact in every precision.
template <typename T>
__global__ void mirrored_rows_kernel(T* to_RI, int64_t size, int64_t inputs, uint32_t seed,
                                     bool is_negated) {
  launch_dependents();
  grid_dependency_wait();
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < size;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t row = i / inputs, column = i % inputs;
    const bool is_mirror = column >= inputs / 2;
    const int64_t first = row * inputs + (is_mirror ? inputs - 1 - column : column);
    const uint32_t bits =
        mixed(mixed(static_cast<uint32_t>(first) ^ seed) + static_cast<uint32_t>(first >> 32));
    const float digits = static_cast<float>(static_cast<int>(bits & 255U) - 128);
    const float x = ldexpf(digits, -7 - static_cast<int>(bits >> 8 & 7U));
    to_RI[i] = from_float<T>(is_mirror && is_negated ? -x : x);
  }
}

}  // namespace

void write_mirrored_rows(Number number, void* to_RI, int64_t rows, int64_t inputs, uint32_t seed,
                         bool is_negated, Stream stream) {
  const int64_t size = rows * inputs, blocks = (size + kThreads - 1) / kThreads;
  with_type(number, [&](auto of) {
    using T = decltype(of);
    launch(mirrored_rows_kernel<T>,
           dim3(static_cast<unsigned>(std::min<int64_t>(blocks, 16 * num_processors()))),
           dim3(kThreads), 0, stream, static_cast<T*>(to_RI), size, inputs, seed, is_negated);
  });
}

}  // namespace slime::kernels::cuda
