#include "kernels/cuda/narrow_product.h"

#include "kernels/cuda/narrow_product_kernel.cuh"
#include "kernels/cuda/tile_map.h"

namespace slime::kernels::cuda {
namespace {

using namespace narrow;

static_assert(kSlabInputs == kSlab && kMostRows == kMostNarrowRows);

template <int kSlabs, int kTiles>
void run(const Arguments& a, int bytes, cudaStream_t stream) {
  constexpr auto kKernel = narrow_product_kernel<kSlabs, kTiles>;
  allow_shared_memory<kKernel>(kSharedBytes);
  launch(kKernel, dim3(a.cut.blocks), dim3(kThreads + 32), bytes, stream, a);
}

/// kTiles: no more than a block with so many slabs in a stage has.
template <int kSlabs, int kTiles = 1>
void run_tiles(const Arguments& a, int bytes, cudaStream_t stream) {
  constexpr int kMostOutputs = kStageBytes / (128 * kSlabs);
  constexpr int kMost = kSlabs == 1 ? kMostTiles : divide_up(kMostOutputs, kTileOutputs);
  if constexpr (kTiles < kMost)
    if (a.cut.tiles() > kTiles) return run_tiles<kSlabs, kTiles + 1>(a, bytes, stream);
  run<kSlabs, kTiles>(a, bytes, stream);
}

}  // namespace

bool has_narrow_product(Number number, int64_t rows, int64_t inputs) {
  return number == Number::kBFloat16 && rows <= kMostRows && 2 * inputs * rows <= kMostInputBytes &&
         compute_capability_major() == 9;
}

void narrow_product(const BatchProduct& call, const NormedInput& norm, cudaStream_t stream) {
  if (!has_narrow_product(Number::kBFloat16, call.rows, call.inputs))
    throw std::runtime_error("no product of " + std::to_string(call.rows) + " rows of " +
                             std::to_string(call.inputs) + " inputs");
  Arguments a;
  a.call = call;
  a.norm = norm;
  a.cut = cut_narrow(call.inputs, call.outputs, call.ending == BatchProduct::Ending::kSwiglu,
                     num_processors());
  a.weights =
      group_tile_map(Number::kBFloat16, call.weight_OI, a.cut.is_pairs ? 2 : 1,
                     call.outputs / (a.cut.is_pairs ? 2 : 1), call.inputs, a.cut.box, a.cut.slabs);
  const SharedLayout layout(a.cut, call.rows, norm.weight_I != nullptr);
  a.stages = layout.stages;
  a.slot_bytes = layout.slot_bytes;
  a.x_begin = layout.x_begin;
  a.norm_begin = layout.norm_begin;
  a.sums_begin = layout.sums_begin;
  a.at_once = layout.at_once;
  switch (a.cut.slabs) {
    case 1:
      return run_tiles<1>(a, layout.bytes, stream);
    case 2:
      return run_tiles<2>(a, layout.bytes, stream);
    case 4:
      return run_tiles<4>(a, layout.bytes, stream);
    case 8:
      return run_tiles<8>(a, layout.bytes, stream);
    default:
      return run_tiles<16>(a, layout.bytes, stream);
  }
}

}  // namespace slime::kernels::cuda
