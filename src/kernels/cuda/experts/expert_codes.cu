/// The kernel of kernels/cuda/experts/expert_codes.h, which is that of expert_product_kernel.cuh but for its weights: a
/// stage has 128 inputs, one block, whose codes the consumers turn into bfloat16 in registers. Those are the first operand
/// of a wgmma, and x is the second, in shared memory. The sums of a block are multiplied with its factor and added up in
/// float32.
///
/// A tile's lines are where they are in bfloat16: of gates and ups in turns of eight, so that a thread has a gate
/// and its up.

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/experts/expert_codes.h"
#include "kernels/cuda/experts/expert_product_kernel.cuh"
#include "kernels/cuda/experts/wgmma_registers.cuh"
#include "kernels/cuda/experts/wide_codes.h"
#include "kernels/cuda/fp8/tile_maps.h"

namespace slime::kernels::cuda {
namespace {

using namespace experts;

constexpr int kMostCodeStages = 12;

/// As experts::Layout: weights are one copy of 128 inputs.
template <int kMostRows>
struct CodeLayout {
  static constexpr int kRows = kMostRows;
  static constexpr int kCopies = 1, kInputs = kStageInputs, kXBegin = kStageInputs * kTileRows;
  static constexpr int kStride = kXBegin + kSlabs * 128 * kRows;
  static constexpr int kPitch = Layout<kRows>::kPitch;
  static constexpr int kResultBytes = Layout<kRows>::kResultBytes;
  static constexpr int kFitting = (kSharedBytes - kResultBytes) / kStride;
  static constexpr int kStages = kFitting < kMostCodeStages ? kFitting : kMostCodeStages;
  static constexpr int kBytes = kStages * kStride + kResultBytes;
  static_assert(mask_bytes(kMostExpertRows, kMostExperts) <= kBytes);
};

struct CodeArguments : Arguments {
  const float* factors_EBC = nullptr;
  const int64_t* factor_row_U = nullptr;
  int factor_rows = 0;
  float* parts_KTU = nullptr;
  const float* visit_weight_V = nullptr;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Two codes at an address of shared memory as two numbers of bfloat16.
__device__ inline uint32_t load_wide(uint32_t address) {
  uint32_t codes, wide;
  asm volatile("ld.shared.u16 %0, [%1];" : "=r"(codes) : "r"(address) : "memory");
  const uint32_t small = as_small_bfloat16(__byte_perm(codes, 0, 0x4140));
  // Volatile: otherwise it would be done where the number is used, when products wait for it.
  asm volatile("mul.rn.bf16x2 %0, %1, %2;" : "=r"(wide) : "r"(small), "r"(kTwoTimes2To120));
  return wide;
}

/// Factors of the two lines of a tile that a thread has sums of, one for each stage.
struct LineFactors {
  const float *low, *high;
};

template <bool kGated>
__device__ LineFactors factors_of(const CodeArguments& a, const Chunk& chunk, int tile, int group) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, units = a.call.units;
  const int unit =
      tile * a.tile_units + (kGated ? 32 * group + 8 * warp : 64 * group + 16 * warp) + lane / 4;
  // Lines behind the last unit are not stored.
  const int low = min(unit, units - 1), high = kGated ? units + low : min(unit + 8, units - 1);
  const float* of_expert =
      a.factors_EBC + static_cast<int64_t>(chunk.expert) * a.factor_rows * a.k_tiles;
  return {of_expert + __ldg(a.factor_row_U + low) * a.k_tiles,
          of_expert + __ldg(a.factor_row_U + high) * a.k_tiles};
}

/// A thread's operands of one stage.
using StageWeights = uint32_t[kStageInputs / 16][4];

/// `line`: this thread's first one of the stage, a multiple of eight and lane / 4.
__device__ inline void load_stage(StageWeights& weights, uint32_t line) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kStageInputs / 16; ++k) {
    // A piece of 16 codes is one step of the products; it is swizzled as tile_map() says.
    const uint32_t piece = line + ((k ^ lane / 4) << 4) + 2 * (lane % 4);
    weights[k][0] = load_wide(piece);
    weights[k][1] = load_wide(piece + 8 * 128);
    weights[k][2] = load_wide(piece + 8);
    weights[k][3] = load_wide(piece + 8 * 128 + 8);
  }
}

/// Main loop of a consumer warpgroup over one item: the sums of its 64 lines. While one stage is multiplied codes of the
/// next become numbers, in registers of their own.
template <typename L>
__device__ void multiply_codes(const Pipeline& pipeline, uint32_t x_full, PipelineState& state,
                               int count, int group, const LineFactors& factors,
                               float (&sum)[L::kRows / 2]) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const uint32_t own = 128 * (64 * group + 16 * warp + lane / 4);
  float of_low = __ldg(factors.low), of_high = __ldg(factors.high);
  float dot[L::kRows / 2] =
      {};  // once: what a product overwrites is no reason to clear it each time
#pragma unroll
  for (float& s : sum) s = 0;
  StageWeights even, odd;
  const auto load = [&](StageWeights& weights) {
    wait(pipeline.full + 8 * state.stage, state.phase);
    load_stage(weights, pipeline.memory + state.stage * L::kStride + own);
  };
  const auto multiply = [&](int i, const StageWeights& weights, StageWeights& next) {
    const int stage = state.stage;
    const float low = of_low, high = of_high;
    const bool has_next = i + 1 < count;
    if (has_next) of_low = __ldg(factors.low + i + 1), of_high = __ldg(factors.high + i + 1);
    wait(x_full + 8 * stage, state.phase);
    fence_async_shared();  // x was not written by TMA, and is read as if it were
    const uint32_t x = pipeline.memory + stage * L::kStride + L::kXBegin;
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kStageInputs / 16; ++k) {
      constexpr int kOfSlab = kSlabInputs / 16;
      wgmma_of_registers(dot, weights[k],
                         matrix_descriptor(x + k / kOfSlab * 128 * L::kRows) + 2 * (k % kOfSlab),
                         k > 0);
    }
    wgmma_commit_group();
    state.advance(1, pipeline.stages);
    if (has_next) load(next);
    wgmma_wait_group<0>();
    settle(dot);
    __syncwarp();  // all lanes have read their codes
    if (lane == 0) arrive(pipeline.empty + 8 * stage);
#pragma unroll
    for (int n = 0; n < L::kRows / 8; ++n) {
      sum[4 * n] += dot[4 * n] * low;
      sum[4 * n + 1] += dot[4 * n + 1] * low;
      sum[4 * n + 2] += dot[4 * n + 2] * high;
      sum[4 * n + 3] += dot[4 * n + 3] * high;
    }
  };
  load(even);
#pragma unroll 1
  for (int i = 0; i < count; i += 2) {
    multiply(i, even, odd);
    if (i + 1 < count) multiply(i + 1, odd, even);
  }
}

/// For a kernel that adds up what rows visit.
template <typename L>
__device__ void write_parts(const CodeArguments& a, const Work& work, const Chunk& chunk, int tile,
                            int group, const float (&sum)[L::kRows / 2]) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, units = a.call.units;
  const int begin = tile * a.tile_units, line = 64 * group + 16 * warp + lane / 4;
  const int lines = min(a.tile_units, units - begin);
#pragma unroll
  for (int n = 0; n < L::kRows / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 8 * n + 2 * (lane % 4) + i;
      if (row >= chunk.rows) continue;
      const int visit = work.visit[chunk.first + row], token = visit / a.call.per_token,
                choice = visit - token * a.call.per_token;
      const float weight = __ldcg(a.visit_weight_V + visit);
      float* to =
          a.parts_KTU + (static_cast<int64_t>(choice) * a.call.rows + token) * units + begin + line;
      if (line < lines) to[0] = sum[4 * n + i] * weight;
      if (line + 8 < lines) to[8] = sum[4 * n + 2 + i] * weight;
    }
  }
}

#endif

/// As expert_product_kernel(). kParts: results are partial sums.
template <int kRows, bool kGated, bool kParts>
__global__ void __launch_bounds__(kThreads, 1)
    expert_codes_kernel(const __grid_constant__ CodeArguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using L = CodeLayout<kRows>;
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ Work work;
  __shared__ uint64_t full[kMostCodeStages], x_full[kMostCodeStages], empty[kMostCodeStages];
  const Pipeline pipeline{shared_address(memory), shared_address(full), shared_address(empty),
                          L::kStages};
  if (threadIdx.x == kConsumerThreads)
    init_stages(a.weights, pipeline, shared_address(x_full), L::kStages, kConsumerThreads / 32);
  // The kernel behind the gated product reads expert_V at once: its start is also the sign that
  // this one has seen expert_V complete.
  if constexpr (kGated) grid_dependency_wait();
  launch_dependents();
  list_work<kThreads>(work, reinterpret_cast<uint32_t*>(memory), a.call.expert_V, a.call.rows,
                      a.call.per_token, a.call.experts, kRows);
  if (threadIdx.x >= kConsumerThreads) {
    load_stages<L, kGated>(a, work, pipeline, shared_address(x_full));
    return;
  }
  grid_dependency_wait();
  count_visits(a, work);
  const int group = threadIdx.x / 128;
  auto* results = reinterpret_cast<__nv_bfloat16*>(memory + L::kStages * L::kStride);
  float sum[kRows / 2];
  PipelineState state;
  for_each_item(a, work, [&](const Chunk& chunk, int tile) {
    const LineFactors factors = factors_of<kGated>(a, chunk, tile, group);
    multiply_codes<L>(pipeline, shared_address(x_full), state, a.k_tiles, group, factors, sum);
    if constexpr (kParts) {
      write_parts<L>(a, work, chunk, tile, group, sum);
    } else {
      write_results<L, kGated>(a, work, chunk, tile, group, sum, results);
    }
  });
#endif
}

/// As expert_pair_map() and row_map() of numbers.
template <bool kGated>
CUtensorMap map_of(const ExpertProduct& call, int tile_units) {
  const auto width = static_cast<cuuint64_t>(call.inputs),
             units = static_cast<cuuint64_t>(call.units),
             experts = static_cast<cuuint64_t>(call.experts);
  const auto box = static_cast<cuuint32_t>(tile_units);
  if constexpr (kGated) {
    return fp8::encoded<4>(call.weights, {width, 8, 2 * experts, units / 8},
                           {width, units * width, 8 * width}, {kStageInputs, 8, 2, box / 8});
  } else {
    return fp8::encoded<2>(call.weights, {width, experts * units}, {width}, {kStageInputs, box});
  }
}

template <int kRows, bool kGated, bool kParts = false>
void run(const ExpertCodes& codes, cudaStream_t stream) {
  constexpr auto kKernel = expert_codes_kernel<kRows, kGated, kParts>;
  using L = CodeLayout<kRows>;
  const ExpertProduct& call = codes.product;
  CodeArguments a;
  a.call = call;
  a.factors_EBC = codes.factors_EBC;
  a.factor_row_U = codes.factor_row_U;
  a.factor_rows = codes.factor_rows;
  a.parts_KTU = codes.parts_KTU;
  a.visit_weight_V = codes.visit_weight_V;
  a.tile_units = choose_tile_units(call, num_processors());
  a.tiles = divide_up(call.units, a.tile_units);
  a.k_tiles = divide_up(call.inputs, kStageInputs);
  const int stage_bytes = kStageInputs * a.tile_units * (kGated ? 2 : 1);
  const int in_flight = call.bytes_in_flight > 0 ? call.bytes_in_flight : kBytesInFlight;
  a.stages_in_flight = std::clamp(in_flight / stage_bytes, 1, L::kStages);
  a.weights = map_of<kGated>(call, a.tile_units);
  allow_shared_memory<kKernel>(L::kBytes);
  const int visits = call.rows * call.per_token;
  const int64_t most_items = int64_t{std::min(call.experts + visits / kRows, visits)} * a.tiles;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(most_items, num_processors()));
  launch(kKernel, dim3(blocks), dim3(kThreads), L::kBytes, stream, a);
}

}  // namespace

bool has_expert_codes(int64_t rows, int64_t per_token, int64_t experts, int64_t inputs,
                      int64_t units) {
  return has_expert_product(rows, per_token, experts, inputs, units) && inputs % 16 == 0;
}

void expert_codes(const ExpertCodes& codes, cudaStream_t stream) {
  const ExpertProduct& call = codes.product;
  if (!has_expert_codes(call.rows, call.per_token, call.experts, call.inputs, call.units))
    throw std::runtime_error("no such product of experts in codes");
  if (call.chunk_rows > 0 && call.chunk_rows < std::min(call.rows, 32))
    throw std::runtime_error("chunks of so few rows may be too many to list");
  const bool has_parts = codes.parts_KTU != nullptr;
  if (has_parts && (call.is_gated || call.rows > kMostPartRows))
    throw std::runtime_error("partial sums of so many rows of experts, or of gated ones");
  const auto with_rows = [&](auto rows) {
    constexpr int kRows = decltype(rows)::value;
    if (has_parts) return run<kRows, false, true>(codes, stream);
    call.is_gated ? run<kRows, true>(codes, stream) : run<kRows, false>(codes, stream);
  };
  const int chunk_rows = call.chunk_rows > 0 ? call.chunk_rows : choose_chunk_rows(call);
  if (chunk_rows <= 8) return with_rows(std::integral_constant<int, 8>());
  if (chunk_rows <= 16) return with_rows(std::integral_constant<int, 16>());
  if (chunk_rows <= 32) return with_rows(std::integral_constant<int, 32>());
  with_rows(std::integral_constant<int, 64>());
}

}  // namespace slime::kernels::cuda
