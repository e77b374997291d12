#include <stdexcept>
#include <type_traits>

#include "kernels/cuda/products/batch_product_launch.h"
#include "kernels/cuda/products/batch_product_mixed.cuh"

namespace slime::kernels::cuda::batch {
namespace {

template <int kRows, int kSlabs>
void run(const BatchProduct& call, const Tiling& tiling, cudaStream_t stream) {
  constexpr auto kKernel = mixed_product_kernel<kRows, kSlabs>;
  const LowRankRows& by_row = call.addition.by_row;
  MixedArguments m;
  m.layout =
      MixedLayout(tiling, kRows, call.rows, num_processors(), by_row.tiles, by_row.most_chunks);
  m.product = arguments_of(call, tiling, m.layout.shared);
  const int threads = 128 * tiling.groups() + kProducerThreads + kMixedThreads;
  allow_shared_memory<kKernel>(kMixedSharedBytes);
  launch(kKernel, dim3(tiling.tiles, tiling.splits), dim3(threads), m.layout.shared.bytes, stream,
         m);
}

template <int kRows>
void run_with_slabs(const BatchProduct& call, const Tiling& tiling, cudaStream_t stream) {
  switch (tiling.slabs) {
    case 1:
      return run<kRows, 1>(call, tiling, stream);
    case 2:
      return run<kRows, 2>(call, tiling, stream);
    default:
      return run<kRows, 4>(call, tiling, stream);
  }
}

}  // namespace

void mixed_batch_product(const BatchProduct& call, const Tiling& tiling, cudaStream_t stream) {
  if (!makes_low_rank_hidden(call))
    throw std::runtime_error("a product of a batch that cannot make h of several adapters");
  if (call.rows <= 8) return run_with_slabs<8>(call, tiling, stream);
  if (call.rows <= 16) return run_with_slabs<16>(call, tiling, stream);
  run_with_slabs<32>(call, tiling, stream);
}

}  // namespace slime::kernels::cuda::batch
