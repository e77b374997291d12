#include "kernels/cuda/products/batch_product.h"

#include <type_traits>

#include "kernels/cuda/products/batch_product_hidden.h"
#include "kernels/cuda/products/batch_product_kernel.cuh"
#include "kernels/cuda/products/batch_product_launch.h"
#include "kernels/cuda/products/batch_product_mixed.h"

namespace slime::kernels::cuda {
namespace {

using namespace batch;

static_assert(kSlabInputs == kSlab && kSlabInputs == kBatchProductInputs);

Tiling tiling_of(int inputs, int outputs, Epilogue epilogue) {
  return epilogue == Epilogue::kSplitK
             ? split_k_tiling(inputs, outputs, num_processors())
             : output_tiling(inputs, outputs, epilogue == Epilogue::kSwiglu, num_processors());
}

template <int kRows, int kSlabs, bool kAdds>
void run(const BatchProduct& call, const Tiling& tiling, cudaStream_t stream) {
  constexpr auto kKernel = batch_product_kernel<kRows, kSlabs, kAdds>;
  const bool makes = call.addition.flags != nullptr;
  if (makes && !makes_low_rank_hidden(call))
    throw std::runtime_error("a product of a batch that cannot make h");
  const SharedLayout layout(
      tiling, kRows, call.rows, num_processors(),
      makes ? hidden_bytes(call.rows, staged_hidden_pitch(call.addition.h_pitch)) : 0);
  const Arguments a = arguments_of(call, tiling, layout);
  const int threads = 128 * tiling.groups() + kProducerThreads + (makes ? kShareThreads : 0);
  allow_shared_memory<kKernel>(kPipelineBytes);
  launch(kKernel, dim3(tiling.tiles, tiling.splits), dim3(threads), a.layout.bytes, stream, a);
}

template <int kRows, int kSlabs>
void run_with_addition(const BatchProduct& call, const Tiling& tiling, cudaStream_t stream) {
  call.addition.h_TR != nullptr ? run<kRows, kSlabs, true>(call, tiling, stream)
                                : run<kRows, kSlabs, false>(call, tiling, stream);
}

}  // namespace

bool has_batch_product(Number number, int64_t rows) {
  return number == Number::kBFloat16 && rows <= kMostBatchRows && compute_capability_major() == 9;
}

int batch_product_splits(int inputs, int outputs) {
  return tiling_of(inputs, outputs, Epilogue::kSplitK).splits;
}

bool makes_low_rank_hidden(const BatchProduct& call) {
  const LowRankAddition& addition = call.addition;
  const LowRankRows& by_row = addition.by_row;
  if (call.rows > kMostMakingRows ||
      !tiling_of(call.inputs, call.outputs, call.epilogue).is_alone(num_processors()))
    return false;
  if (by_row.tiles > 0)
    return by_row.tiles <= kMostMixedTiles &&
           mixed_hidden_bytes(call.rows, by_row.most_chunks) <= kMostHiddenBytes &&
           kFirstHiddenFlag + by_row.tiles * mixed_units(by_row.most_chunks) <= kMostHiddenFlags;
  return hidden_bytes(call.rows, staged_hidden_pitch(addition.down.ranks)) <= kMostHiddenBytes &&
         kFirstHiddenFlag + hidden_units(addition.down, call.rows) <= kMostHiddenFlags;
}

int64_t low_rank_hidden_numbers(const BatchProduct& call) {
  const LowRankRows& by_row = call.addition.by_row;
  return by_row.tiles > 0 ? mixed_numbers(call.rows, by_row.most_chunks)
                          : hidden_numbers(call.addition.down, call.rows);
}

void batch_product(const BatchProduct& call, cudaStream_t stream) {
  if (!has_batch_product(Number::kBFloat16, call.rows))
    throw std::runtime_error("a product of a batch has at most " + std::to_string(kMostBatchRows) +
                             " rows");
  const Tiling tiling = tiling_of(call.inputs, call.outputs, call.epilogue);
  if (call.addition.flags != nullptr && call.addition.by_row.tiles > 0)
    return mixed_batch_product(call, tiling, stream);
  const auto with_rows = [&](auto rows) {
    constexpr int kRows = decltype(rows)::value;
    switch (tiling.slabs) {
      case 1:
        return run_with_addition<kRows, 1>(call, tiling, stream);
      case 2:
        return run_with_addition<kRows, 2>(call, tiling, stream);
      default:
        return run_with_addition<kRows, 4>(call, tiling, stream);
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
