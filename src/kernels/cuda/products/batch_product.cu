#include "kernels/cuda/products/batch_product.h"

#include <type_traits>

#include "kernels/cuda/products/batch_product_kernel.cuh"
#include "kernels/cuda/products/tile_map.h"

namespace slime::kernels::cuda {
namespace {

using namespace batch;

static_assert(kSlabInputs == kSlab && kSlabInputs == kBatchProductInputs);

Cut cut_product(int inputs, int outputs, Ending ending) {
  return ending == Ending::kParts
             ? cut_into_parts(inputs, outputs, num_processors())
             : cut_outputs(inputs, outputs, ending == Ending::kSwiglu, num_processors());
}

template <int kRows, int kSlabs>
void run(const BatchProduct& call, const Cut& cut, cudaStream_t stream) {
  constexpr auto kKernel = batch_product_kernel<kRows, kSlabs>;
  Arguments a;
  a.layout = SharedLayout(cut, kRows, call.rows, num_processors());
  a.weights = tile_map(Number::kBFloat16, call.weight_OI, call.outputs, call.inputs, cut.box,
                       cut.is_pairs ? 1 : cut.slabs);
  a.x = tile_map(Number::kBFloat16, call.x_TI, call.rows, call.inputs, a.layout.x_rows, cut.slabs);
  a.bias_O = static_cast<const __nv_bfloat16*>(call.bias_O);
  a.y = call.y;
  a.cut = cut;
  a.ending = call.ending;
  a.float_result = call.float_result;
  a.rows = call.rows;
  a.units = cut.is_pairs ? call.outputs / 2 : call.outputs;
  allow_shared_memory<kKernel>(kRingBytes);
  launch(kKernel, dim3(cut.tiles, cut.parts), dim3(128 * cut.groups() + kAskers), a.layout.bytes,
         stream, a);
}

}  // namespace

bool has_batch_product(Number number, int64_t rows) {
  return number == Number::kBFloat16 && rows <= kMostBatchRows && compute_capability_major() == 9;
}

int batch_product_parts(int inputs, int outputs) {
  return cut_product(inputs, outputs, Ending::kParts).parts;
}

void batch_product(const BatchProduct& call, cudaStream_t stream) {
  if (!has_batch_product(Number::kBFloat16, call.rows))
    throw std::runtime_error("a product of a batch has at most " + std::to_string(kMostBatchRows) +
                             " rows");
  const Cut cut = cut_product(call.inputs, call.outputs, call.ending);
  const auto with_rows = [&](auto rows) {
    constexpr int kRows = decltype(rows)::value;
    switch (cut.slabs) {
      case 1:
        return run<kRows, 1>(call, cut, stream);
      case 2:
        return run<kRows, 2>(call, cut, stream);
      default:
        return run<kRows, 4>(call, cut, stream);
    }
  };
  if (call.rows <= 8) {
    with_rows(std::integral_constant<int, 8>());
  } else if (call.rows <= 16) {
    with_rows(std::integral_constant<int, 16>());
  } else if (call.rows <= 32) {
    with_rows(std::integral_constant<int, 32>());
  } else {
    with_rows(std::integral_constant<int, 64>());
  }
}

}  // namespace slime::kernels::cuda
