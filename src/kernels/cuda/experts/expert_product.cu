#include "kernels/cuda/experts/expert_product.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/experts/expert_product_kernel.cuh"
#include "kernels/cuda/experts/expert_tiling.h"
#include "kernels/cuda/products/tile_map.h"

namespace slime::kernels::cuda {
namespace {

using namespace experts;

template <int kRows, bool kGated>
void run(const ExpertProduct& call, cudaStream_t stream) {
  constexpr auto kKernel = expert_product_kernel<kRows, kGated>;
  Arguments a;
  a.call = call;
  a.tile_units = choose_tile_units(call, num_processors());
  a.tiles = divide_up(call.units, a.tile_units);
  a.k_tiles = divide_up(call.inputs, kStageInputs);
  const int stage_bytes = kSlabs * 128 * a.tile_units * (kGated ? 2 : 1);
  const int in_flight = call.bytes_in_flight > 0 ? call.bytes_in_flight : kBytesInFlight;
  a.stages_in_flight = std::clamp(in_flight / stage_bytes, 1, Layout<kRows>::kStages);
  a.weights =
      kGated ? expert_pair_map(call.weights, call.experts, call.units, call.inputs, a.tile_units)
             : row_map(call.weights, int64_t{call.experts} * call.units, call.inputs, a.tile_units);
  allow_shared_memory<kKernel>(Layout<kRows>::kBytes);
  const int64_t most_items = int64_t{std::min(call.experts + call.rows * call.per_token / kRows,
                                              call.rows * call.per_token)} *
                             a.tiles;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(most_items, num_processors()));
  launch(kKernel, dim3(blocks), dim3(kThreads), Layout<kRows>::kBytes, stream, a);
}

}  // namespace

bool has_expert_product(int64_t rows, int64_t per_token, int64_t experts, int64_t inputs,
                        int64_t units) {
  return compute_capability_major() == 9 && rows <= kMostExpertRows &&
         rows * per_token <= kMostExpertVisits && experts <= kMostExperts && inputs % 8 == 0 &&
         units % 8 == 0;
}

void expert_product(const ExpertProduct& call, cudaStream_t stream) {
  if (!has_expert_product(call.rows, call.per_token, call.experts, call.inputs, call.units))
    throw std::runtime_error("no such product of experts");
  if (call.chunk_rows > 0 && call.chunk_rows < std::min(call.rows, 32))
    throw std::runtime_error("chunks of so few rows may be too many to list");
  const auto with_rows = [&](auto rows) {
    constexpr int kRows = decltype(rows)::value;
    call.is_gated ? run<kRows, true>(call, stream) : run<kRows, false>(call, stream);
  };
  const int chunk_rows = call.chunk_rows > 0 ? call.chunk_rows : choose_chunk_rows(call);
  if (chunk_rows <= 8) {
    with_rows(std::integral_constant<int, 8>());
  } else if (chunk_rows <= 16) {
    with_rows(std::integral_constant<int, 16>());
  } else if (chunk_rows <= 32) {
    with_rows(std::integral_constant<int, 32>());
  } else {
    with_rows(std::integral_constant<int, 64>());
  }
}

}  // namespace slime::kernels::cuda
