#include "kernels/cuda/products/narrow_product.h"

#include "kernels/cuda/products/narrow_product_kernel.cuh"
#include "kernels/cuda/products/tile_map.h"

namespace slime::kernels::cuda {
namespace {

using namespace narrow;

static_assert(kSlabInputs == kSlab);

template <int kSlabs, int kTiles, bool kHasAdapters>
void run(const Arguments& a, cudaStream_t stream) {
  constexpr auto kKernel = narrow_product_kernel<kSlabs, kTiles, kHasAdapters>;
  allow_shared_memory<kKernel>(kSharedBytes);
  const int threads =
      a.call.addition.made != nullptr ? kBlockThreads<kHasAdapters> : kBlockThreads<false>;
  launch(kKernel, dim3(a.tiling.blocks), dim3(threads), a.layout.bytes, stream, a);
}

/// kTiles: no more than a thread block with so many slabs in a stage has.
template <int kSlabs, int kTiles = 1>
void run_tiles(const Arguments& a, cudaStream_t stream) {
  constexpr int kMostOutputs = kStageBytes / (128 * kSlabs);
  constexpr int kMost = kSlabs == 1 ? kMostTiles : divide_up(kMostOutputs, kTileOutputs);
  if constexpr (kTiles < kMost)
    if (a.tiling.tiles() > kTiles) return run_tiles<kSlabs, kTiles + 1>(a, stream);
  a.call.addition.h_TR != nullptr ? run<kSlabs, kTiles, true>(a, stream)
                                  : run<kSlabs, kTiles, false>(a, stream);
}

}  // namespace

bool has_narrow_product(Number number, int64_t rows, int64_t inputs) {
  return number == Number::kBFloat16 && rows <= kMostRows && 2 * inputs * rows <= kMostInputBytes &&
         compute_capability_major() == 9;
}

void narrow_product(const BatchProduct& call, const NormPrologue& norm, cudaStream_t stream) {
  if (!has_narrow_product(Number::kBFloat16, call.rows, call.inputs))
    throw std::runtime_error("no product of " + std::to_string(call.rows) + " rows of " +
                             std::to_string(call.inputs) + " inputs");
  const bool is_pairs = call.epilogue == BatchProduct::Epilogue::kSwiglu;
  const int groups = is_pairs ? 2 : 1;  // gates and ups
  const Tiling tiling = narrow_tiling(call.inputs, call.outputs, is_pairs, num_processors());
  const Arguments a{group_tile_map(Number::kBFloat16, call.weight_OI, groups, call.outputs / groups,
                                   call.inputs, tiling.box, tiling.slabs),
                    call,
                    norm,
                    tiling,
                    SharedLayout(tiling, call.rows, norm.weight_I != nullptr),
                    num_processors()};
  switch (tiling.slabs) {
    case 1:
      return run_tiles<1>(a, stream);
    case 2:
      return run_tiles<2>(a, stream);
    case 4:
      return run_tiles<4>(a, stream);
    case 8:
      return run_tiles<8>(a, stream);
    default:
      return run_tiles<16>(a, stream);
  }
}

}  // namespace slime::kernels::cuda
