#include "core/divide_up.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/capped_score.cuh"
#include "kernels/cuda/attention/decode_operands.cuh"
#include "kernels/cuda/attention/decode_results.cuh"
#include "kernels/cuda/attention/decode_segments.cuh"
#include "kernels/cuda/attention/step_heads.cuh"

/// Attention of one new row per sequence: bound by reading keys and values once.
///
/// A thread block has a unit of the plan (kernels/gpu/decode_units.h) and a key-value head, and
/// goes through the unit's segments (split-KV: a sequence may be spread over units). Its warps take
/// pages round-robin; a page of a head is 16 x D numbers in one piece, and goes from memory
/// straight into tensor-core operands:
///   scores [rows, keys] = Q K^T      a: Q, in the upper eight rows         b: K, as it lies
///   out^T [dims, rows] += V^T P^T    a: V, two keys interleaved            b: P, as scores came
///   out
/// Rows are the query heads of the segment's sequences, eight to a warp. Where several sequences
/// share the pages there are more than eight, and warps with different rows take the same page: the
/// first brings it from memory, the others find it in the L1 cache.
///
/// While a warp works on a page the next one is prefetched, be it the next segment's first. Warps
/// are reduced through shared memory. A sequence that is in one segment is then done; segments of
/// others leave records, and a second kernel adds those up in the order of the keys
/// (merge_records.cu). (Whoever arrives last could do it, but its fence waits for the pages in
/// flight and invalidates the L1 cache: ten microseconds a segment.)
///
/// In a step of nothing but decode this kernel also norms and rotates (step_heads.cuh): a launch
/// less in every layer, and pages and tables are read while the projection still runs.
///
/// In this file: lane = 4 group + quarter, and `group` is a row within the warp's eight.

namespace slime::kernels::cuda {
namespace {

using namespace decode;

constexpr float kLog2E = 1.4426950408889634F;

template <typename T, typename Kv, int kDim>
__global__ void __launch_bounds__(32 * kWarps, decode_blocks_per_processor(kDim, sizeof(Kv)))
    attend_decode_kernel(Arguments arguments) {
  constexpr int kTiles = kDim / 16;
  __shared__ BlockMemory<T, Kv, kDim> memory;
  const AttendCall& call = arguments.call;
  const DecodeArrays& plan = arguments.plan;
  const Block block(arguments);
  launch_dependents();
  const int kv_head = blockIdx.y, num_kv_heads = call.num_kv_heads;
  int index = plan.unit_starts[blockIdx.x];
  const int end = plan.unit_starts[blockIdx.x + 1];
  if (index == end) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / 4, quarter = lane % 4;
  const int32_t* pages = call.paged.pages;
  const int64_t page_size = static_cast<int64_t>(num_kv_heads) * kPageTokens * kDim;
  const int64_t head_offset = static_cast<int64_t>(kv_head) * kPageTokens * kDim;
  const Kv* all_keys = static_cast<const Kv*>(call.paged.keys) + head_offset;
  const Kv* all_values = static_cast<const Kv*>(call.paged.values) + head_offset;
  const auto page_offset = [&](const DecodeSegment& segment, int page) {
    return pages[segment.pages_offset + page] * page_size;
  };
  Keys<Kv, kDim> keys;
  Values<Kv, kDim> values;
  Share now = block.share_of(index, warp);
  bool is_loaded = false;  // whether the warp's next page is prefetched
  const auto load = [&] {
    const int64_t offset = page_offset(now.segment, now.page);
    load_keys<Kv, kDim>(keys, all_keys + offset, group, quarter);
    load_values<Kv, kDim>(values, all_values + offset, group, quarter,
                          valid_in(now.segment, now.page));
    is_loaded = true;
  };
  // Keys and values but this step's were written by earlier ones: no need to wait for them. Without
  // rotation here, pages that get keys now come from the kernel before this one.
  const bool rotates = arguments.rotates;
  if (now.is_there() && (rotates || now.page < now.segment.num_pages - now.segment.num_fresh))
    load();
  const StepHeads<T, Kv, kDim> heads(arguments, kv_head);
  StepHead<kDim> step_head;
  if (rotates) step_head = heads.choose(now, 0);
  grid_dependency_wait();
  if (rotates) heads.read(step_head, now, 0);

  while (true) {
    if (now.is_there() && !is_loaded) load();
    const bool is_end = index + 1 == end;
    Share next;
    if (!is_end) next = block.share_of(index + 1, warp);
    int fresh_page = -1;  // whose last row is in shared memory
    if (rotates) {
      int64_t fresh_offset = 0;  // of the step's key in the cache: PagedBatch::slot_T in elements
      if (now.segment.num_fresh) {
        fresh_page = now.segment.num_pages - 1;
        fresh_offset = head_offset + page_offset(now.segment, fresh_page) +
                       (now.segment.last_tokens - 1) * kDim;
      }
      const auto rows_of = [&](int of) -> auto& { return memory.warps[of].step; };
      for (int first = 0; first < heads.count(now); first += heads.kHeadsAtOnce) {
        if (first > 0) {
          step_head = heads.choose(now, first);
          heads.read(step_head, now, first);
        }
        heads.put(step_head, now, first, rows_of, fresh_offset);
      }
      __syncthreads();
    }
    const int row = kSetRows * now.set + group;
    Query<T, Kv, kDim> query;
    query.clear();
    int low = 0;  // first key that this lane's row sees
    if (rotates && row < now.num_rows) query.load(memory.warps[warp].step.query[group], quarter);
    // The division and the load of the member have long latency: only where they are needed.
    if ((!rotates || call.window > 0) && row < now.num_rows) {
      const int i = row / arguments.group, head = row - i * arguments.group;
      const DecodeMember member = block.member(now.segment.first_member + i);
      low = block.first_key(member.sequence);
      if (!rotates)
        query.load(static_cast<const T*>(call.q) + member.row * call.row_stride +
                       (kv_head * arguments.group + head) * kDim,
                   quarter);
    }

    const float scale = call.scale * kLog2E;
    float out[kTiles][4] = {};
    float largest = -INFINITY, weight = 0;  // of row `group`; the weight is this lane's share
    while (now.is_there()) {
      const int page = now.page;
      if (page == fresh_page)
        replace_row<Kv, kDim>(keys, values, memory.warps[warp].step.key,
                              memory.warps[warp].step.value, now.segment.last_tokens - 1, group,
                              quarter);
      now.page += now.step;
      const bool is_here = now.is_there();
      is_loaded = is_here || (!is_end && next.is_there());
      int64_t next_offset = 0;
      int next_valid = 0;
      if (is_here) {
        next_offset = page_offset(now.segment, now.page);
        next_valid = valid_in(now.segment, now.page);
      } else if (is_loaded) {
        next_offset = page_offset(next.segment, next.page);
        next_valid = valid_in(next.segment, next.page);
      }
      float score[2][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half)
        score_keys<T, Kv, kDim>(score[half], query, keys.x[half]);
      if (is_loaded) load_keys<Kv, kDim>(keys, all_keys + next_offset, group, quarter);

      const int first = now.segment.first_key + page * kPageTokens;
      const int valid = valid_in(now.segment, page);
      if (call.cap > 0) {
        // Scaled below. From the arguments each time: registers are few.
        const float share = fast_divide(call.scale, call.cap), whole = fast_divide(1.0F, share);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int i = 0; i < 2; ++i) score[half][i] = whole * score_tanh(score[half][i] * share);
        }
      }
      float best = -INFINITY;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = 2 * quarter + i + 8 * half;
          score[half][i] = first + key >= low && key < valid ? score[half][i] * scale : -INFINITY;
          best = fmaxf(best, score[half][i]);
        }
      }
      best = fmaxf(best, shuffle_xor(best, 1));
      best = fmaxf(best, shuffle_xor(best, 2));
      const float fresh = fmaxf(largest, best);
      // A row may have seen no key yet: its window begins later.
      const float base = fresh == -INFINITY ? 0 : fresh;
      const float shrink = exp2f(largest - base);
      if (any_lane(fresh != largest)) {
        const float a = shuffle(shrink, 8 * quarter);
        const float b = shuffle(shrink, 8 * quarter + 4);
#pragma unroll
        for (int r = 0; r < kTiles; ++r) {
          out[r][0] *= a;
          out[r][1] *= b;
          out[r][2] *= a;
          out[r][3] *= b;
        }
      }
      largest = fresh;
      weight *= shrink;
      uint32_t p[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float a = exp2f(score[half][0] - base), b = exp2f(score[half][1] - base);
        weight += a + b;
        p[half] = pack<Operand<T, Kv>>(a, b);
      }
#pragma unroll
      for (int r = 0; r < kTiles; ++r) add_values<T, Kv, kDim>(out[r], values, r, p);
      if (is_loaded)
        load_values<Kv, kDim>(values, all_values + next_offset, group, quarter, next_valid);
    }

    sync_lanes();  // the sums overlay the step's rows
    weight += shuffle_xor(weight, 1);
    weight += shuffle_xor(weight, 2);
    if (quarter == 0) {
      memory.largest[warp][group] = largest;
      memory.weight[warp][group] = weight;
    }
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      const int dim = dim_of<Kv, kDim>(r, group);
      float(&sums)[kSetRows][kDim + 4] = memory.warps[warp].sums;
      sums[2 * quarter][dim] = out[r][0];
      sums[2 * quarter + 1][dim] = out[r][1];
      sums[2 * quarter][dim + 1] = out[r][2];
      sums[2 * quarter + 1][dim + 1] = out[r][3];
    }
    step_head = {};  // frees its registers while pages are read
    if (rotates && !is_end) {
      step_head = heads.choose(next, 0);
      heads.read(step_head, next, 0);
    }
    __syncthreads();

    write_results(arguments, memory, now, kv_head);
    if (is_end) return;
    __syncthreads();  // the next segment's rows and sums overlay these
    ++index;
    now = next;
  }
}

/// Loads in flight to registers pass through the L1 cache, and the products before this kernel
/// leave it little. With many sequences changing the carve-out is worth its cost.
template <typename T, typename Kv, int kDim>
SharedShare share_for(int num_sequences) {
  constexpr int kManySequences = 64;
  if (num_sequences <= kManySequences) return kDriverChooses;
  constexpr int kOfSystem = 1024;  // of each block
  constexpr int kNeeded = decode_blocks_per_processor(kDim, sizeof(Kv)) *
                          (static_cast<int>(sizeof(BlockMemory<T, Kv, kDim>)) + kOfSystem);
  return SharedShare{static_cast<unsigned>(divide_up(100 * kNeeded, shared_bytes_of_processor()))};
}

template <typename T, typename Kv, int kDim>
void run(const Arguments& arguments, Stream stream) {
  launch(share_for<T, Kv, kDim>(arguments.call.paged.num_sequences),
         attend_decode_kernel<T, Kv, kDim>,
         dim3(arguments.plan.num_units, arguments.call.num_kv_heads), dim3(32 * kWarps), 0, stream,
         arguments);
}

template <typename T, int kDim>
void run(const Arguments& arguments, Stream stream) {
  arguments.call.paged.is_fp8 ? run<T, Fp8, kDim>(arguments, stream)
                              : run<T, T, kDim>(arguments, stream);
}

}  // namespace

bool has_decode(Number number, int head_dim, int group) {
  return number != Number::kFloat32 && (head_dim == 64 || head_dim == 128) &&
         group <= kMostDecodeRows;
}

void attend_decode(const AttendCall& call, const DecodeArrays& plan, const RotateCall* rotate,
                   Stream stream) {
  Arguments arguments;
  arguments.call = call;
  arguments.plan = plan;
  arguments.group = call.num_heads / call.num_kv_heads;
  arguments.rotates = rotate != nullptr;
  if (rotate != nullptr) arguments.rotate = *rotate;
  if (!has_decode(call.number, call.head_dim, arguments.group))
    throw std::runtime_error(
        "decode attention has head sizes 64 and 128 in 16-bit precisions and at most 32 query "
        "heads per key-value head");
  const bool is_bfloat16 = call.number == Number::kBFloat16;
  if (call.head_dim == 64) {
    is_bfloat16 ? run<BFloat16, 64>(arguments, stream) : run<Float16, 64>(arguments, stream);
  } else {
    is_bfloat16 ? run<BFloat16, 128>(arguments, stream) : run<Float16, 128>(arguments, stream);
  }
  merge_records(call, plan, stream);
}

}  // namespace slime::kernels::cuda
