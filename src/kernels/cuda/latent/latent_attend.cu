#include "core/divide_up.h"
#include "kernels/cuda/latent/latent_operands.cuh"
#include "kernels/cuda/products/pipeline.cuh"

/// Attention over latents: all heads of a row look at the same keys, so 16 of them are the rows of one
/// tensor-core operand, and a key's numbers serve as key and as value.
///
/// A thread block has a unit of the plan (kernels/gpu/decode_units.h), or a row of a prompt, and 16
/// heads. A producer warp copies 32 keys a stage into shared memory, each row of the cache in one piece,
/// through a pipeline that runs on from segment to segment. Of each stage
///   scores [16, 32] = Q K^T     a warp has eight keys and half of the numbers; the sums meet in
///                               shared memory
///   out [16, 512] += P K        a warp has 64 numbers of the latent, and all weights P: each makes the
///                               softmax for itself, so nothing more is exchanged
/// Rows in shared memory are 16 bytes apart from a multiple of 128: eight of them lie in different
/// banks, read as they are or transposed.
///
/// In this file: lane = 4 group + quarter, and `group` is a head within eight.

namespace slime::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kHeads = 16, kKeys = 32, kStages = 5;
constexpr int kRowBytes = 2 * kLatentRow, kPitch = kRowBytes + 16;
constexpr int kStageBytes = kKeys * kPitch, kQueryBytes = kHeads * kPitch;
constexpr int kHalfSteps = kLatentRow / 16 / 2;  // of 16 numbers, that a warp has
constexpr int kWarpNumbers = kLatentRank / kWarps, kTiles = kWarpNumbers / 8;
constexpr float kLog2E = 1.4426950408889634F;

/// Partial scores of the two halves of the warps, in turns of two.
struct Scores {
  float x[2][2][kHeads][kKeys + 4];
};
constexpr int kSharedBytes = kStages * kStageBytes + kQueryBytes + static_cast<int>(sizeof(Scores));

struct Arguments {
  LatentAttend call;
  DecodeArrays plan;  // without units: a thread block has a row, or a unit of its chosen tokens
};

/// What a thread block attends at a time.
struct Run {
  int64_t row = 0;
  int pages_offset = 0, num_keys = 0;
  const int32_t* slots = nullptr;  // of chosen tokens
  int record = -1;
  int num_old = 0;  // keys before any of this step
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline Run run_of(const Arguments& a, int index) {
  Run run;
  const ChosenTokens& chosen = a.call.chosen;
  if (chosen.slot_TC != nullptr) {
    run.row = index / chosen.units;
    const int count = latent::chosen_of_row(chosen, run.row),
              of_unit = latent::chosen_of_unit(chosen, count);
    const int begin = min(index % chosen.units * of_unit, count);
    run.num_keys = min(of_unit, count - begin);
    run.slots = chosen.slot_TC + run.row * chosen.most + begin;
    if (count > of_unit) run.record = index;
    return run;
  }
  if (a.plan.num_units == 0) {
    run.row = index;
    if (a.call.unit_sequence_U != nullptr)
      run.row =
          a.call.paged.query_starts[a.call.unit_sequence_U[index]] + a.call.unit_tile_U[index];
    run.pages_offset = a.call.paged.page_starts[a.call.row_sequence_T[run.row]];
    run.num_keys = static_cast<int>(a.call.positions_T[run.row]) + 1;
    return run;
  }
  const auto* words = reinterpret_cast<const int4*>(a.plan.segments + index);
  const int4 first = words[0], second = words[1];
  const DecodeSegment segment{first.x,  first.y,  first.z,  first.w,
                              second.x, second.y, second.z, second.w};
  const int4 member = reinterpret_cast<const int4*>(a.plan.members)[segment.first_member];
  run.row = member.y;
  run.record = member.z;
  run.pages_offset = segment.pages_offset;
  run.num_keys = (segment.num_pages - 1) * kPageTokens + segment.last_tokens;
  run.num_old = segment.num_fresh == 0 ? run.num_keys + kKeys
                                       : (segment.num_pages - segment.num_fresh) * kPageTokens;
  return run;
}

__device__ inline void copy_row(uint32_t to, const void* from, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(kRowBytes), "r"(barrier)
      : "memory");
}

struct Shared {
  Pipeline pipeline;
  uint32_t query, query_full, query_empty;
};

/// The producer, by one warp.
__device__ inline void load(const Arguments& a, const Shared& shared, int index, int end) {
  const int lane = static_cast<int>(threadIdx.x) % 32, first_head = kHeads * blockIdx.y;
  const Pipeline& pipeline = shared.pipeline;
  const auto* rows = static_cast<const char*>(a.call.rows);
  PipelineState state;
  int loaded = 0;
  bool is_after_others = false;  // whether the kernels before this one have ended
  for (int i = 0; index < end; ++index, ++i) {
    const Run run = run_of(a, index);
    const auto load_query = [&] {
      if (!is_after_others) {
        grid_dependency_wait();
        fence_async_global();
        is_after_others = true;
      }
      if (i > 0) wait(shared.query_empty, (i - 1) & 1);
      if (lane == 0) arrive_expect_tx(shared.query_full, kHeads * kRowBytes);
      __syncwarp();
      const int head = min(first_head + lane, a.call.num_heads - 1);
      if (lane < kHeads)
        copy_row(shared.query + lane * kPitch,
                 static_cast<const char*>(a.call.q_TNE) +
                     (run.row * a.call.num_heads + head) * kRowBytes,
                 shared.query_full);
    };
    // Old keys need not wait for the kernel that makes queries and the new key.
    bool has_query = is_after_others || a.plan.num_units == 0;
    if (has_query) load_query();
    const int tiles = (run.num_keys + kKeys - 1) / kKeys;
    // Of chosen tokens, a tile ahead; past the L1 cache, which may have seen the choice of another layer.
    const auto slot_of = [&](int key) { return __ldcg(run.slots + min(key, run.num_keys - 1)); };
    int next_slot = run.slots == nullptr ? 0 : slot_of(lane);
    for (int tile = 0; tile < tiles; ++tile, ++loaded) {
      if (!has_query && (tile == kStages || (tile + 1) * kKeys > run.num_old)) {
        load_query();
        has_query = true;
      }
      if (loaded >= kStages) wait(pipeline.empty + 8 * state.stage, state.phase ^ 1);
      const uint32_t barrier = pipeline.full + 8 * state.stage;
      if (lane == 0) arrive_expect_tx(barrier, kKeys * kRowBytes);
      __syncwarp();
      // Behind the last key it is repeated: whatever lies there may be no number.
      const int key = min(tile * kKeys + lane, run.num_keys - 1);
      int64_t slot = next_slot;
      if (run.slots == nullptr) {
        const int64_t page = a.call.paged.pages[run.pages_offset + key / kPageTokens];
        slot = page * kPageTokens + key % kPageTokens;
      }
      copy_row(pipeline.memory + state.stage * kStageBytes + lane * kPitch, rows + slot * kRowBytes,
               barrier);
      if (run.slots != nullptr) next_slot = slot_of((tile + 1) * kKeys + lane);
      state.advance(1, kStages);
    }
    if (!has_query) load_query();
  }
}

/// The consumers: eight warps.
__device__ inline void attend(const Arguments& a, const Shared& shared, Scores& scores, int index,
                              int end) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4, quarter = lane % 4, half = warp / 4, eight = warp % 4;
  const int num_heads = a.call.num_heads, head = kHeads * blockIdx.y + group;
  const Pipeline& pipeline = shared.pipeline;
  const float scale = a.call.scale * kLog2E;
  const uint32_t key_line =
      pipeline.memory + (8 * eight + lane % 8) * kPitch + 32 * kHalfSteps * half + 16 * (lane / 8);
  const uint32_t value_line =
      latent::line_of_sixteen(pipeline.memory + 2 * (kLatentRotary + kWarpNumbers * warp), kPitch);
  PipelineState state;
  int turn = 0;
  for (int i = 0; index < end; ++index, ++i) {
    const Run run = run_of(a, index);
    uint32_t query[kHalfSteps][4];
    wait(shared.query_full, i & 1);
    const uint32_t query_line =
        latent::line_of_sixteen(shared.query + 32 * kHalfSteps * half, kPitch);
#pragma unroll
    for (int s = 0; s < kHalfSteps; ++s) load_matrices(query[s], query_line + 32 * s);
    __syncwarp();
    if (lane == 0) arrive(shared.query_empty);

    float out[kTiles][4] = {};
    float largest[2] = {-INFINITY, -INFINITY}, weight[2] = {};  // of heads `group` and group + 8
    for (int first = 0; first < run.num_keys; first += kKeys, turn ^= 1) {
      wait(pipeline.full + 8 * state.stage, state.phase);
      const uint32_t stage = state.stage * kStageBytes;
      float even[4] = {}, odd[4] = {};
#pragma unroll
      for (int s = 0; s < kHalfSteps; s += 2) {
        uint32_t key[4];
        load_matrices(key, key_line + stage + 32 * s);
        multiply<__nv_bfloat16>(even, query[s][0], query[s][1], query[s][2], query[s][3], key[0],
                                key[1]);
        multiply<__nv_bfloat16>(odd, query[s + 1][0], query[s + 1][1], query[s + 1][2],
                                query[s + 1][3], key[2], key[3]);
      }
      const int column = 8 * eight + 2 * quarter;
      *reinterpret_cast<float2*>(&scores.x[turn][half][group][column]) =
          make_float2(even[0] + odd[0], even[1] + odd[1]);
      *reinterpret_cast<float2*>(&scores.x[turn][half][group + 8][column]) =
          make_float2(even[2] + odd[2], even[3] + odd[3]);
      sync_consumers(kThreads);

      uint32_t p[2][4];  // of each head four pairs of weights
      float shrink[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float score[4][2];
        float best = -INFINITY;
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          const int key = 8 * m + 2 * quarter;
          const float2 x = *reinterpret_cast<const float2*>(&scores.x[turn][0][group + 8 * h][key]);
          const float2 y = *reinterpret_cast<const float2*>(&scores.x[turn][1][group + 8 * h][key]);
          score[m][0] = first + key < run.num_keys ? (x.x + y.x) * scale : -INFINITY;
          score[m][1] = first + key + 1 < run.num_keys ? (x.y + y.y) * scale : -INFINITY;
          best = fmaxf(best, fmaxf(score[m][0], score[m][1]));
        }
        best = fmaxf(best, __shfl_xor_sync(0xffffffffU, best, 1));
        best = fmaxf(best, __shfl_xor_sync(0xffffffffU, best, 2));
        const float fresh = fmaxf(largest[h], best);  // a number: there is a key in each stage
        shrink[h] = exp2f(largest[h] - fresh);
        largest[h] = fresh;
        weight[h] *= shrink[h];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          const float x = exp2f(score[m][0] - fresh), y = exp2f(score[m][1] - fresh);
          weight[h] += x + y;
          p[h][m] = pack<__nv_bfloat16>(x, y);
        }
      }
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        out[t][0] *= shrink[0];
        out[t][1] *= shrink[0];
        out[t][2] *= shrink[1];
        out[t][3] *= shrink[1];
      }
#pragma unroll
      for (int s = 0; s < kKeys / 16; ++s) {
#pragma unroll
        for (int t = 0; t < kTiles; t += 2) {
          uint32_t value[4];
          load_turned(value, value_line + stage + 16 * s * kPitch + 16 * t);
          multiply<__nv_bfloat16>(out[t], p[0][2 * s], p[1][2 * s], p[0][2 * s + 1],
                                  p[1][2 * s + 1], value[0], value[1]);
          multiply<__nv_bfloat16>(out[t + 1], p[0][2 * s], p[1][2 * s], p[0][2 * s + 1],
                                  p[1][2 * s + 1], value[2], value[3]);
        }
      }
      __syncwarp();
      if (lane == 0) arrive(pipeline.empty + 8 * state.stage);
      state.advance(1, kStages);
    }

#pragma unroll
    for (int h = 0; h < 2; ++h) {
      weight[h] += __shfl_xor_sync(0xffffffffU, weight[h], 1);
      weight[h] += __shfl_xor_sync(0xffffffffU, weight[h], 2);
      if (head + 8 * h >= num_heads) continue;
      const int64_t at =
          (run.record < 0 ? run.row : run.record) * static_cast<int64_t>(num_heads) + head + 8 * h;
      const int64_t number = at * kLatentRank + kWarpNumbers * warp + 2 * quarter;
      if (run.record < 0) {
        auto* to = static_cast<__nv_bfloat16*>(a.call.out_TNL) + number;
        const float share = 1 / weight[h];
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
          *reinterpret_cast<uint32_t*>(to + 8 * t) =
              pack<__nv_bfloat16>(out[t][2 * h] * share, out[t][2 * h + 1] * share);
      } else {
        float* to = a.plan.record_sums + number;
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
          *reinterpret_cast<float2*>(to + 8 * t) = make_float2(out[t][2 * h], out[t][2 * h + 1]);
        if (warp == 0 && quarter == 0)
          a.plan.record_weights[at] = make_float2(largest[h], weight[h]);
      }
    }
  }
}

#endif

__global__ void __launch_bounds__(kThreads + 32, 1)
    attend_latent_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ uint64_t full[kStages], empty[kStages], query_full, query_empty;
  launch_dependents();
  int index = blockIdx.x, end = index + 1;
  if (a.plan.num_units > 0) {
    index = a.plan.unit_starts[blockIdx.x];
    end = a.plan.unit_starts[blockIdx.x + 1];
  }
  if (index == end || (a.call.chosen.slot_TC != nullptr && run_of(a, index).num_keys == 0)) return;
  Shared shared;
  shared.pipeline = {shared_address(memory), shared_address(full), shared_address(empty), kStages};
  shared.query = shared.pipeline.memory + kStages * kStageBytes;
  shared.query_full = shared_address(&query_full);
  shared.query_empty = shared_address(&query_empty);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init_barrier(shared.pipeline.full + 8 * i, 1);
      init_barrier(shared.pipeline.empty + 8 * i, kWarps);
    }
    init_barrier(shared.query_full, 1);
    init_barrier(shared.query_empty, kWarps);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= kThreads) {
    load(a, shared, index, end);
  } else {
    auto& scores = *reinterpret_cast<Scores*>(memory + kStages * kStageBytes + kQueryBytes);
    attend(a, shared, scores, index, end);
  }
#endif
}

void run(const Arguments& a, unsigned blocks, cudaStream_t stream) {
  allow_shared_memory<attend_latent_kernel>(kSharedBytes);
  const auto groups = static_cast<unsigned>((a.call.num_heads + kHeads - 1) / kHeads);
  launch(attend_latent_kernel, dim3(blocks, groups), dim3(kThreads + 32), kSharedBytes, stream, a);
}

/// A thread block merges one row of four heads.
constexpr int kMergedHeads = 4, kMergeThreads = kLatentRank / 4;  // of a head
constexpr int kMergeStaged = 4;                                   // records

__global__ void __launch_bounds__(kMergedHeads* kMergeThreads)
    merge_latent_records_kernel(const LatentAttend call, const DecodeArrays plan) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __shared__ float4 staging[kMergeStaged][kMergedHeads * kMergeThreads];
  launch_dependents();
  const int row = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x), four = thread % kMergeThreads;
  const int head = kMergedHeads * static_cast<int>(blockIdx.y) + thread / kMergeThreads;
  const int2 records = latent::records_of(plan, call.chosen, row);
  // Also without records: a kernel that waits for this one relies on the preceding one too.
  grid_dependency_wait();
  if (records.y == 0 || head >= call.num_heads) return;
  const float4 x =
      latent::merged_four<kMergeStaged>(plan, call.num_heads, records.x, records.y, head, four,
                                        shared_address(&staging[0][thread]), sizeof(staging[0]));
  static_cast<uint2*>(
      call.out_TNL)[(static_cast<int64_t>(row) * call.num_heads + head) * (kLatentRank / 4) +
                    four] =
      make_uint2(pack<__nv_bfloat16>(x.x, x.y), pack<__nv_bfloat16>(x.z, x.w));
#endif
}

void check_latent(const LatentAttend& call) {
  if (call.number != Number::kBFloat16 || call.rank != kLatentRank ||
      call.rotary_dim != kLatentRotary)
    throw std::runtime_error("fast latent attention is for 512 + 64 numbers in bfloat16");
}

}  // namespace

bool has_latent_attend() { return compute_capability_major() == 9; }

void attend_latent_rows(const LatentAttend& call, cudaStream_t stream) {
  check_latent(call);
  const int64_t units = call.unit_sequence_U == nullptr ? call.num_rows : call.num_units;
  run({call, {}}, static_cast<unsigned>(units), stream);
}

void attend_latent_units(const LatentAttend& call, const DecodeArrays& plan, cudaStream_t stream) {
  check_latent(call);
  run({call, plan}, static_cast<unsigned>(plan.num_units), stream);
}

void attend_latent_chosen(const LatentAttend& call, const DecodeArrays& plan, cudaStream_t stream) {
  check_latent(call);
  if (call.chosen.slot_TC == nullptr || plan.num_units != 0)
    throw std::runtime_error("chosen tokens are units of their own");
  run({call, plan}, static_cast<unsigned>(call.num_rows * call.chosen.units), stream);
}

void merge_latent_records(const LatentAttend& call, const DecodeArrays& plan, cudaStream_t stream) {
  launch(merge_latent_records_kernel,
         dim3(static_cast<unsigned>(call.num_rows),
              static_cast<unsigned>(divide_up(call.num_heads, kMergedHeads))),
         dim3(kMergedHeads * kMergeThreads), 0, stream, call, plan);
}

}  // namespace slime::kernels::cuda
