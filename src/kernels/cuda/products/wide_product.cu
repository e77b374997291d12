#include "kernels/cuda/products/wide_product.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "kernels/cuda/products/tile_map.h"
#include "kernels/cuda/products/wide_product_kernel.cuh"

namespace slime::kernels::cuda {
namespace {

using namespace wide;
using Epilogue = BatchProduct::Epilogue;

static_assert(kSlabInputs == kSlab && kSlabInputs == kBatchProductInputs);

constexpr int kLowRows = kTileRows * kGroups, kMostRows = 2 * kLowRows;

Tiling tiling_of(int inputs, int outputs, bool is_split_k) {
  return wide_tiling(inputs / kSlabInputs, outputs, is_split_k, num_processors());
}

template <int kOutputs, int kTiles, bool kPairs, bool kAdds>
void run(const BatchProduct& call, const Tiling& tiling, cudaStream_t stream) {
  constexpr int kRows = kTileRows * kGroups * kTiles;
  constexpr auto kKernel = wide_product_kernel<kOutputs, kTiles, kPairs, kAdds>;
  const int k_tiles = call.inputs / kSlabInputs;
  const SharedLayout layout(kRows, kOutputs, divide_up(k_tiles, tiling.splits));
  Arguments a;
  a.units = kPairs ? call.outputs / 2 : call.outputs;
  a.weights =
      kPairs ? pair_tile_map(Number::kBFloat16, call.weight_OI, a.units, call.inputs, kOutputs / 2)
             : tile_map(Number::kBFloat16, call.weight_OI, a.units, call.inputs, kOutputs, 1);
  a.x = tile_map(Number::kBFloat16, call.x_TI, call.rows, call.inputs, call.rows, 1);
  a.bias_O = static_cast<const __nv_bfloat16*>(call.bias_O);
  a.y = call.y;
  a.rows = call.rows;
  a.tiles = tiling.tiles;
  a.k_tiles = k_tiles;
  a.splits = tiling.splits;
  a.stages = layout.stages;
  a.addition = call.addition;
  allow_shared_memory<kKernel>(kSharedBytes);
  const int blocks = std::min(tiling.tiles, num_processors());
  launch(kKernel, dim3(blocks, tiling.splits), dim3(kThreads), layout.bytes, stream, a);
}

template <int kTiles, bool kPairs, bool kAdds, int... kChoices>
void run_one_of(std::integer_sequence<int, kChoices...>, const BatchProduct& call,
                const Tiling& tiling, cudaStream_t stream) {
  const bool is_found = ((tiling.outputs == kChoices &&
                          (run<kChoices, kTiles, kPairs, kAdds>(call, tiling, stream), true)) ||
                         ...);
  if (!is_found) throw std::logic_error("no kernel for thread blocks of so many outputs");
}

template <bool kPairs, bool kAdds>
void run_with_rows(const BatchProduct& call, const Tiling& tiling, cudaStream_t stream) {
  call.rows <= kLowRows ? run_one_of<1, kPairs, kAdds>(BlockOutputs(), call, tiling, stream)
                        : run_one_of<2, kPairs, kAdds>(BlockOutputs(), call, tiling, stream);
}

template <bool kPairs>
void run_with_addition(const BatchProduct& call, const Tiling& tiling, cudaStream_t stream) {
  call.addition.h_TR != nullptr ? run_with_rows<kPairs, true>(call, tiling, stream)
                                : run_with_rows<kPairs, false>(call, tiling, stream);
}

}  // namespace

bool has_wide_product(Number number, int64_t rows) {
  return number == Number::kBFloat16 && rows > kMostBatchRows && rows <= kMostRows &&
         compute_capability_major() == 9;
}

int wide_product_splits(int inputs, int outputs) { return tiling_of(inputs, outputs, true).splits; }

void wide_product(const BatchProduct& call, cudaStream_t stream) {
  if (!has_wide_product(Number::kBFloat16, call.rows) || call.epilogue == Epilogue::kStore ||
      call.addition.by_row.tiles > 0)
    throw std::logic_error("no such wide product");
  const bool is_split_k = call.epilogue == Epilogue::kSplitK;
  const Tiling tiling = tiling_of(call.inputs, call.outputs, is_split_k);
  is_split_k ? run_with_addition<false>(call, tiling, stream)
             : run_with_addition<true>(call, tiling, stream);
}

}  // namespace slime::kernels::cuda
