#include "kernels/cuda/attention/attention.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kNumbers = 8;  // that a thread copies at once

/// A page per thread block.
template <typename T, typename Kv>
__global__ void __launch_bounds__(kThreads) gather_pages_kernel(GatherCall call) {
  launch_dependents();
  grid_dependency_wait();
  const int64_t page = call.pages_P[blockIdx.x];
  const int kv = call.num_kv_heads, packs = call.head_dim / kNumbers;  // of a head
  const int half = kPageTokens * kv * packs;                           // of keys, or of values
  T* out = static_cast<T*>(call.rows_CX) +
           static_cast<int64_t>(blockIdx.x) * kPageTokens * 2 * kv * call.head_dim;
  for (int i = threadIdx.x; i < 2 * half; i += kThreads) {
    // In the order of what is written.
    const int token = i / (2 * kv * packs), in_row = i % (2 * kv * packs);
    const bool is_value = in_row >= kv * packs;
    const int head = in_row / packs % kv, pack = in_row % packs;
    const auto* from = static_cast<const Kv*>(is_value ? call.values : call.keys) +
                       ((page * kv + head) * kPageTokens + token) * call.head_dim + pack * kNumbers;
    const auto numbers = *reinterpret_cast<const Pack<Kv, kNumbers>*>(from);
    Pack<T, kNumbers> row;
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) row.x[j] = from_float<T>(to_float(numbers.x[j]));
    reinterpret_cast<Pack<T, kNumbers>*>(out)[i] = row;
  }
}

template <typename T>
void gather(const GatherCall& call, Stream stream) {
  const dim3 grid(call.num_pages);
  if (call.is_fp8) {
    launch(gather_pages_kernel<T, Fp8>, grid, dim3(kThreads), 0, stream, call);
  } else {
    launch(gather_pages_kernel<T, T>, grid, dim3(kThreads), 0, stream, call);
  }
}

}  // namespace

void gather_pages(const GatherCall& call, Stream stream) {
  if (call.number == Number::kFloat32 || call.head_dim % kNumbers != 0)
    throw std::runtime_error("pages are gathered in 16-bit precisions, heads in packs of 8");
  call.number == Number::kBFloat16 ? gather<BFloat16>(call, stream) : gather<Float16>(call, stream);
}

}  // namespace slime::kernels::cuda
