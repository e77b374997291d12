#include "kernels/cuda/products/wide_product.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "kernels/cuda/products/tile_map.h"
#include "kernels/cuda/products/wide_product_kernel.cuh"

namespace slime::kernels::cuda {
namespace {

using namespace wide;
using Ending = BatchProduct::Ending;

static_assert(kSlabInputs == kSlab && kSlabInputs == kBatchProductInputs);

constexpr int kLowRows = kTileRows * kGroups, kMostRows = 2 * kLowRows;

Cut cut_product(int inputs, int outputs, bool has_parts) {
  return cut_wide(inputs / kSlabInputs, outputs, has_parts, num_processors());
}

template <int kOutputs, int kTiles, bool kPairs>
void run(const BatchProduct& call, const Cut& cut, cudaStream_t stream) {
  constexpr int kRows = kTileRows * kGroups * kTiles;
  constexpr auto kKernel = wide_product_kernel<kOutputs, kTiles, kPairs>;
  const int chunks = call.inputs / kSlabInputs;
  const SharedLayout layout(kRows, kOutputs, divide_up(chunks, cut.parts));
  Arguments a;
  a.units = kPairs ? call.outputs / 2 : call.outputs;
  a.weights =
      kPairs ? pair_tile_map(Number::kBFloat16, call.weight_OI, a.units, call.inputs, kOutputs / 2)
             : tile_map(Number::kBFloat16, call.weight_OI, a.units, call.inputs, kOutputs, 1);
  a.x = tile_map(Number::kBFloat16, call.x_TI, call.rows, call.inputs, call.rows, 1);
  a.bias_O = static_cast<const __nv_bfloat16*>(call.bias_O);
  a.y = call.y;
  a.rows = call.rows;
  a.tiles = cut.tiles;
  a.chunks = chunks;
  a.parts = cut.parts;
  a.stages = layout.stages;
  allow_shared_memory<kKernel>(kSharedBytes);
  const int blocks = std::min(cut.tiles, num_processors());
  launch(kKernel, dim3(blocks, cut.parts), dim3(kThreads), layout.bytes, stream, a);
}

template <int kTiles, bool kPairs, int... kChoices>
void run_one_of(std::integer_sequence<int, kChoices...>, const BatchProduct& call, const Cut& cut,
                cudaStream_t stream) {
  const bool is_found =
      ((cut.outputs == kChoices && (run<kChoices, kTiles, kPairs>(call, cut, stream), true)) ||
       ...);
  if (!is_found) throw std::logic_error("no kernel for blocks of so many outputs");
}

template <bool kPairs>
void run_with_rows(const BatchProduct& call, const Cut& cut, cudaStream_t stream) {
  call.rows <= kLowRows ? run_one_of<1, kPairs>(BlockOutputs(), call, cut, stream)
                        : run_one_of<2, kPairs>(BlockOutputs(), call, cut, stream);
}

}  // namespace

bool has_wide_product(Number number, int64_t rows) {
  return number == Number::kBFloat16 && rows > kMostBatchRows && rows <= kMostRows &&
         compute_capability_major() == 9;
}

int wide_product_parts(int inputs, int outputs) { return cut_product(inputs, outputs, true).parts; }

void wide_product(const BatchProduct& call, cudaStream_t stream) {
  if (!has_wide_product(Number::kBFloat16, call.rows) || call.ending == Ending::kStore)
    throw std::logic_error("no such wide product");
  const bool has_parts = call.ending == Ending::kParts;
  const Cut cut = cut_product(call.inputs, call.outputs, has_parts);
  has_parts ? run_with_rows<false>(call, cut, stream) : run_with_rows<true>(call, cut, stream);
}

}  // namespace slime::kernels::cuda
