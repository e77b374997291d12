#pragma once

/// Arguments of the kernels of kernels/cuda/products/batch_product.h, on the host.

#include "kernels/cuda/products/batch_product_epilogue.cuh"
#include "kernels/cuda/products/tile_map.h"

namespace slime::kernels::cuda::batch {

inline Arguments arguments_of(const BatchProduct& call, const Tiling& tiling,
                              const SharedLayout& layout) {
  Arguments a;
  a.layout = layout;
  a.weights = tile_map(Number::kBFloat16, call.weight_OI, call.outputs, call.inputs, tiling.box,
                       tiling.is_pairs ? 1 : tiling.slabs);
  a.x =
      tile_map(Number::kBFloat16, call.x_TI, call.rows, call.inputs, a.layout.x_rows, tiling.slabs);
  a.bias_O = static_cast<const __nv_bfloat16*>(call.bias_O);
  a.y = call.y;
  a.tiling = tiling;
  a.epilogue = call.epilogue;
  a.float_result = call.float_result;
  a.rows = call.rows;
  a.units = tiling.is_pairs ? call.outputs / 2 : call.outputs;
  a.x_TI = call.x_TI;
  a.inputs = call.inputs;
  a.addition = call.addition;
  return a;
}

/// Of rows that take adapters of their own, which makes_low_rank_hidden() says it can multiply.
void mixed_batch_product(const BatchProduct& call, const Tiling& tiling, cudaStream_t stream);

}  // namespace slime::kernels::cuda::batch
