#include <cuda_fp8.h>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/tensor_core.cuh"
#include "kernels/decode_segment.h"

/// Attention of one new row per sequence: bound by reading keys and values once.
///
/// A block has a unit of the plan (kernels/decode_units.h) and a key-value head, and goes through
/// the unit's segments. Its warps take pages in turn; a page of a head is 16 x D numbers in one
/// piece, and goes from memory straight into tensor-core operands:
///   scores [rows, keys] = Q K^T      a: Q, in the upper eight rows         b: K, as it lies
///   out^T [dims, rows] += V^T P^T    a: V, two keys interleaved            b: P, as scores came
///   out
/// Rows are the query heads of the segment's sequences, eight to a warp. Where several sequences
/// share the pages there are more than eight, and warps with different rows take the same page: the
/// first brings it from memory, the others find it in the L1 cache.
///
/// While a warp works on a page the next one is on its way, be it the next segment's first. Warps
/// add up through shared memory. A sequence that is in one segment is then done; segments of others
/// leave records, and a second kernel adds those up in the order of the keys. (Whoever arrives last
/// could do it, but its fence waits for the pages on their way and empties the L1 cache: ten
/// microseconds a segment.)
///
/// In this file: lane = 4 group + quarter, and `group` is a row within the warp's eight.

namespace slime::kernels::cuda {
namespace {

constexpr int kWarps = kDecodeWarps;
constexpr int kSetRows = kDecodeSetRows;
constexpr float kLog2E = 1.4426950408889634F;

struct Arguments {
  AttendCall call;
  DecodeArrays plan;
  int group = 1;  // query heads per key-value head
};

/// Keys and values are T, or fp8 (e4m3) under T activations; then tensor-core operands are float16,
/// which holds every e4m3 number exactly.
template <typename T, typename Kv>
using Operand = std::conditional_t<sizeof(Kv) == 1, __half, T>;

/// Keys of one page: those of this lane's two rows, 16 bytes at a time.
template <typename Kv, int kDim>
struct Keys {
  static constexpr int kPacks = kDim * static_cast<int>(sizeof(Kv)) / 64;
  uint4 x[2][kPacks];
};
/// Values of one page: those of this lane's four keys, a share of their dims.
template <typename Kv, int kDim>
struct Values {
  static constexpr int kWords = kDim * static_cast<int>(sizeof(Kv)) / 32;
  uint32_t x[4][kWords];
};

__device__ uint4 load_page(const void* pointer) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(pointer));
  return x;
}
__device__ uint2 load_half_pack(const void* pointer) {
  uint2 x;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
               : "=r"(x.x), "=r"(x.y)
               : "l"(pointer));
  return x;
}

template <typename Kv, int kDim>
__device__ void load_keys(Keys<Kv, kDim>& keys, const Kv* page, int group, int quarter) {
  constexpr int kNumbers = 16 / static_cast<int>(sizeof(Kv));  // in a pack
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < Keys<Kv, kDim>::kPacks; ++j)
      keys.x[half][j] = load_page(page + (group + 8 * half) * kDim + kNumbers * (4 * j + quarter));
  }
}

/// The dim that lane `group` has in the upper half of tile r of the result; the lower half has the
/// next one.
template <typename Kv, int kDim>
__device__ int dim_of(int r, int group) {
  if constexpr (sizeof(Kv) == 1) return kDim / 8 * group + 2 * r;
  return 64 * (r / 4) + 8 * group + 2 * (r % 4);
}

/// Rows at `valid` and beyond were never written, and may be no numbers.
template <typename Kv, int kDim>
__device__ void load_values(Values<Kv, kDim>& values, const Kv* page, int group, int quarter,
                            int valid) {
  constexpr int kWords = Values<Kv, kDim>::kWords;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int key = 2 * quarter + (k & 1) + 8 * (k >> 1);
    uint32_t(&words)[kWords] = values.x[k];
    const Kv* row = page + key * kDim;
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = 0;
    if (key >= valid) continue;
    if constexpr (kWords == 2) {
      const uint2 x = load_half_pack(row + 8 * group);
      words[0] = x.x;
      words[1] = x.y;
    } else {
#pragma unroll
      for (int j = 0; j < kWords / 4; ++j) {
        const uint4 x = load_page(row + (8 * j + group) * (16 / static_cast<int>(sizeof(Kv))));
        words[4 * j] = x.x;
        words[4 * j + 1] = x.y;
        words[4 * j + 2] = x.z;
        words[4 * j + 3] = x.w;
      }
    }
  }
}

/// Two e4m3 numbers, in the low half, as two float16.
__device__ uint32_t widen(uint32_t two) {
  const __half2_raw wide =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3);
  return static_cast<uint32_t>(wide.x) | static_cast<uint32_t>(wide.y) << 16;
}

/// Two bfloat16 numbers as float16, as far as that reaches.
__device__ uint32_t to_half(uint32_t two) {
  constexpr float kMost = 65504;
  const float low = __uint_as_float(two << 16), high = __uint_as_float(two & 0xffff0000U);
  return pack<__half>(fminf(fmaxf(low, -kMost), kMost), fminf(fmaxf(high, -kMost), kMost));
}

/// A lane's share of a query row, in the order of its keys.
template <typename T, typename Kv, int kDim>
struct Query {
  uint4 x[kDim / 32];
  __device__ void clear() {
#pragma unroll
    for (int j = 0; j < kDim / 32; ++j) x[j] = make_uint4(0, 0, 0, 0);
  }
  __device__ void load(const T* q, int quarter) {
    constexpr bool kIsNarrow = sizeof(Kv) == 1;
#pragma unroll
    for (int j = 0; j < kDim / 32; ++j) {
      const int first =
          kIsNarrow ? 64 * (j / 2) + 16 * quarter + 8 * (j % 2) : 32 * j + 8 * quarter;
      uint4 y = *reinterpret_cast<const uint4*>(q + first);
      if constexpr (kIsNarrow && !std::is_same_v<T, __half>)
        y = make_uint4(to_half(y.x), to_half(y.y), to_half(y.z), to_half(y.w));
      x[j] = y;
    }
  }
};

/// score += query keys^T, for eight keys.
template <typename T, typename Kv, int kDim>
__device__ void score_keys(float (&score)[4], const Query<T, Kv, kDim>& query,
                           const uint4 (&keys)[Keys<Kv, kDim>::kPacks]) {
#pragma unroll
  for (int j = 0; j < Keys<Kv, kDim>::kPacks; ++j) {
    const uint4 k = keys[j];
    if constexpr (sizeof(Kv) == 1) {
      const uint4 q = query.x[2 * j], r = query.x[2 * j + 1];
      multiply<__half>(score, q.x, 0, q.y, 0, widen(k.x & 0xffffU), widen(k.x >> 16));
      multiply<__half>(score, q.z, 0, q.w, 0, widen(k.y & 0xffffU), widen(k.y >> 16));
      multiply<__half>(score, r.x, 0, r.y, 0, widen(k.z & 0xffffU), widen(k.z >> 16));
      multiply<__half>(score, r.z, 0, r.w, 0, widen(k.w & 0xffffU), widen(k.w >> 16));
    } else {
      const uint4 q = query.x[j];
      multiply<T>(score, q.x, 0, q.y, 0, k.x, k.y);
      multiply<T>(score, q.z, 0, q.w, 0, k.z, k.w);
    }
  }
}

/// Tile r of the result += values^T p^T.
template <typename T, typename Kv, int kDim>
__device__ void add_values(float (&out)[4], const Values<Kv, kDim>& values, int r,
                           const uint32_t (&p)[2]) {
  if constexpr (sizeof(Kv) == 1) {
    const uint32_t order = r % 2 == 0 ? 0x5140 : 0x7362;  // key a, key b, key a, key b
    const uint32_t early = __byte_perm(values.x[0][r / 2], values.x[1][r / 2], order);
    const uint32_t late = __byte_perm(values.x[2][r / 2], values.x[3][r / 2], order);
    multiply<__half>(out, widen(early & 0xffffU), widen(early >> 16), widen(late & 0xffffU),
                     widen(late >> 16), p[0], p[1]);
  } else {
    const uint32_t v0 = values.x[0][r], v1 = values.x[1][r];
    const uint32_t v2 = values.x[2][r], v3 = values.x[3][r];
    multiply<T>(out, low_halves(v0, v1), high_halves(v0, v1), low_halves(v2, v3),
                high_halves(v2, v3), p[0], p[1]);
  }
}

/// A segment as one warp sees it: its row set, and which pages are its own.
struct Share {
  DecodeSegment segment;
  int num_rows = 0, sets = 1, set = 0;
  int page = 0, step = 1;  // within the segment
  __device__ bool is_there() const { return page < segment.num_pages; }
};

class Block {
 public:
  __device__ explicit Block(const Arguments& arguments) : arguments_(arguments) {}

  __device__ Share share_of(int index, int warp) const {
    Share share;
    const auto* words = reinterpret_cast<const int4*>(arguments_.plan.segments + index);
    const int4 a = words[0], b = words[1];
    share.segment = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    share.num_rows = a.y * arguments_.group;
    share.sets = decode_row_sets(share.num_rows);
    share.set = warp & (share.sets - 1);
    share.step = kWarps / share.sets;
    share.page = warp / share.sets;
    // Pages before the window. Those that several sequences share are masked instead.
    if (arguments_.call.window > 0 && a.y == 1)
      share.page +=
          max(0, first_key(member(share.segment.first_member).sequence) - b.y) / kPageTokens;
    return share;
  }
  __device__ DecodeMember member(int index) const {
    const int4 x = reinterpret_cast<const int4*>(arguments_.plan.members)[index];
    return {x.x, x.y, x.z, x.w};
  }
  /// The first key that the row of this sequence sees.
  __device__ int first_key(int sequence) const {
    const AttendCall& call = arguments_.call;
    if (call.window == 0) return 0;
    const int pages = call.paged.page_starts[sequence + 1] - call.paged.page_starts[sequence];
    const int num_keys = (pages - 1) * kPageTokens + call.paged.last_page_tokens[sequence];
    return max(0, num_keys - static_cast<int>(call.window));
  }

 private:
  const Arguments& arguments_;
};

__device__ bool is_last_page(const DecodeSegment& segment, int page) {
  return page + 1 == segment.num_pages;
}
__device__ int valid_in(const DecodeSegment& segment, int page) {
  return is_last_page(segment, page) ? segment.last_tokens : kPageTokens;
}

__device__ float warp_max(float x) {
  for (int offset = 16; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, offset));
  return x;
}

/// 2 or 4 floats in one load.
template <int kCount>
struct Floats {
  float x[kCount];
  __device__ void load(const float* from) {
    if constexpr (kCount == 4) {
      const float4 y = *reinterpret_cast<const float4*>(from);
      x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
    } else {
      const float2 y = *reinterpret_cast<const float2*>(from);
      x[0] = y.x, x[1] = y.y;
    }
  }
};

/// Where a row of a segment goes, counted in heads: into the output, or among the records.
struct Result {
  int64_t place;
  float scale;  // 0: a record
};

template <typename T, typename Kv, int kDim>
__global__ void __launch_bounds__(32 * kWarps, decode_blocks_per_processor(kDim, sizeof(Kv)))
    attend_decode_kernel(Arguments arguments) {
  constexpr int kTiles = kDim / 16;
  __shared__ alignas(16) float sums[kWarps][kSetRows][kDim + 4];
  __shared__ float largest_of[kWarps][kSetRows], weight_of[kWarps][kSetRows];
  __shared__ Result results[kMostDecodeRows];
  const AttendCall& call = arguments.call;
  const DecodeArrays& plan = arguments.plan;
  const Block block(arguments);
  let_next_start();
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
  const auto place_of = [&](const DecodeSegment& segment, int page) {
    return pages[segment.pages_offset + page] * page_size;
  };
  Keys<Kv, kDim> keys;
  Values<Kv, kDim> values;
  Share now = block.share_of(index, warp);
  bool is_loaded = false;  // the page that is next
  const auto load = [&] {
    const int64_t place = place_of(now.segment, now.page);
    load_keys<Kv, kDim>(keys, all_keys + place, group, quarter);
    load_values<Kv, kDim>(values, all_values + place, group, quarter,
                          valid_in(now.segment, now.page));
    is_loaded = true;
  };
  // All pages but those that get a key now were written by earlier steps: no need to wait for this
  // one's.
  if (now.is_there() && !(now.segment.is_fresh && is_last_page(now.segment, now.page))) load();
  wait_for_inputs();

  while (true) {
    if (now.is_there() && !is_loaded) load();
    const bool is_end = index + 1 == end;
    Share next;
    if (!is_end) next = block.share_of(index + 1, warp);
    const int row = kSetRows * now.set + group;
    Query<T, Kv, kDim> query;
    query.clear();
    int low = 0;  // first key that this lane's row sees
    if (row < now.num_rows) {
      const int i = row / arguments.group, head = row - i * arguments.group;
      const DecodeMember member = block.member(now.segment.first_member + i);
      low = block.first_key(member.sequence);
      query.load(static_cast<const T*>(call.q) + member.row * call.row_stride +
                     (kv_head * arguments.group + head) * kDim,
                 quarter);
    }

    const float scale = call.scale * kLog2E;
    float out[kTiles][4] = {};
    float largest = -INFINITY, weight = 0;  // of row `group`; the weight is this lane's share
    while (now.is_there()) {
      const int page = now.page;
      now.page += now.step;
      const bool is_here = now.is_there();
      is_loaded = is_here || (!is_end && next.is_there());
      int64_t next_place = 0;
      int next_valid = 0;
      if (is_here) {
        next_place = place_of(now.segment, now.page);
        next_valid = valid_in(now.segment, now.page);
      } else if (is_loaded) {
        next_place = place_of(next.segment, next.page);
        next_valid = valid_in(next.segment, next.page);
      }
      float score[2][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half)
        score_keys<T, Kv, kDim>(score[half], query, keys.x[half]);
      if (is_loaded) load_keys<Kv, kDim>(keys, all_keys + next_place, group, quarter);

      const int first = now.segment.first_key + page * kPageTokens;
      const int valid = valid_in(now.segment, page);
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
      best = fmaxf(best, __shfl_xor_sync(0xffffffffU, best, 1));
      best = fmaxf(best, __shfl_xor_sync(0xffffffffU, best, 2));
      const float fresh = fmaxf(largest, best);
      // A row may have seen no key yet: its window begins later.
      const float base = fresh == -INFINITY ? 0 : fresh;
      const float shrink = exp2f(largest - base);
      if (__any_sync(0xffffffffU, fresh != largest)) {
        const float a = __shfl_sync(0xffffffffU, shrink, 8 * quarter);
        const float b = __shfl_sync(0xffffffffU, shrink, 8 * quarter + 4);
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
        load_values<Kv, kDim>(values, all_values + next_place, group, quarter, next_valid);
    }

    weight += __shfl_xor_sync(0xffffffffU, weight, 1);
    weight += __shfl_xor_sync(0xffffffffU, weight, 2);
    if (quarter == 0) {
      largest_of[warp][group] = largest;
      weight_of[warp][group] = weight;
    }
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      const int dim = dim_of<Kv, kDim>(r, group);
      sums[warp][2 * quarter][dim] = out[r][0];
      sums[warp][2 * quarter + 1][dim] = out[r][1];
      sums[warp][2 * quarter][dim + 1] = out[r][2];
      sums[warp][2 * quarter + 1][dim + 1] = out[r][3];
    }
    __syncthreads();

    if (static_cast<int>(threadIdx.x) < now.num_rows) {
      const int r = threadIdx.x, place = r % kSetRows;
      float most = -INFINITY, total = 0;
      for (int w = r / kSetRows; w < kWarps; w += now.sets)
        most = fmaxf(most, largest_of[w][place]);
      for (int w = r / kSetRows; w < kWarps; w += now.sets) {
        float& share = largest_of[w][place];
        share = share == -INFINITY ? 0 : exp2f(share - most);
        total += share * weight_of[w][place];
      }
      const int m = r / arguments.group, head = kv_head * arguments.group + r - m * arguments.group;
      const DecodeMember member = block.member(now.segment.first_member + m);
      Result& result = results[r];
      result.scale = member.record < 0 ? 1 / total : 0;
      result.place =
          (member.record < 0 ? member.row : member.record) * static_cast<int64_t>(call.num_heads) +
          head;
      if (member.record >= 0) plan.record_weights[result.place] = {most, total};
    }
    __syncthreads();
    constexpr int kPacks = kDim / 4;
    for (int i = threadIdx.x; i < now.num_rows * kPacks; i += blockDim.x) {
      const int r = i / kPacks, dim = i % kPacks * 4, place = r % kSetRows;
      float4 sum = make_float4(0, 0, 0, 0);
      for (int w = r / kSetRows; w < kWarps; w += now.sets) {
        const float share = largest_of[w][place];
        const float4 x = *reinterpret_cast<const float4*>(&sums[w][place][dim]);
        sum = make_float4(sum.x + share * x.x, sum.y + share * x.y, sum.z + share * x.z,
                          sum.w + share * x.w);
      }
      const float scale = results[r].scale;
      const int64_t at = results[r].place * kDim + dim;
      if (scale == 0) {
        *reinterpret_cast<float4*>(plan.record_sums + at) = sum;
      } else {
        *reinterpret_cast<uint2*>(static_cast<T*>(call.out_TC) + at) = make_uint2(
            pack<T>(sum.x * scale, sum.y * scale), pack<T>(sum.z * scale, sum.w * scale));
      }
    }
    if (is_end) return;
    __syncthreads();  // the next segment's sums take the place of these
    ++index;
    now = next;
  }
}

constexpr int kMergeWarps = 8;

/// A warp adds up the records of a sequence for one query head.
template <typename T, int kDim>
__global__ void __launch_bounds__(32 * kMergeWarps) merge_records_kernel(Arguments arguments) {
  constexpr int kNumbers = kDim / 32;  // of a lane
  const AttendCall& call = arguments.call;
  const DecodeArrays& plan = arguments.plan;
  let_next_start();
  const int lane = threadIdx.x % 32;
  const int sequence = blockIdx.x, head = blockIdx.y * kMergeWarps + threadIdx.x / 32;
  const int first = plan.record_starts[sequence];
  const int num_records = plan.record_starts[sequence + 1] - first;
  const int64_t row = call.paged.query_starts[sequence];
  // Also without records: who waits for this kernel means the one before it too.
  wait_for_inputs();
  if (head >= call.num_heads || num_records == 0) return;

  float largest = -INFINITY, total = 0, sum[kNumbers] = {};
  for (int begin = 0; begin < num_records; begin += 32) {
    const int count = min(32, num_records - begin);
    float2 mine = make_float2(-INFINITY, 0);
    if (lane < count)
      mine =
          plan.record_weights[static_cast<int64_t>(first + begin + lane) * call.num_heads + head];
    const float fresh = fmaxf(largest, warp_max(mine.x));
    const float shrink = largest == -INFINITY ? 0 : exp2f(largest - fresh);
    const float share = mine.x == -INFINITY ? 0 : exp2f(mine.x - fresh);
    total = total * shrink + warp_sum(share * mine.y);
    largest = fresh;
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) sum[i] *= shrink;
    const float* from = plan.record_sums +
                        (static_cast<int64_t>(first + begin) * call.num_heads + head) * kDim +
                        lane * kNumbers;
#pragma unroll 8
    for (int c = 0; c < count; ++c) {
      const float weight = __shfl_sync(0xffffffffU, share, c);
      Floats<kNumbers> x;
      x.load(from + static_cast<int64_t>(c) * call.num_heads * kDim);
#pragma unroll
      for (int i = 0; i < kNumbers; ++i) sum[i] += weight * x.x[i];
    }
  }
  T* out = static_cast<T*>(call.out_TC) + (row * call.num_heads + head) * kDim + lane * kNumbers;
  uint32_t packed[kNumbers / 2];
#pragma unroll
  for (int i = 0; i < kNumbers / 2; ++i)
    packed[i] = pack<T>(sum[2 * i] / total, sum[2 * i + 1] / total);
  if constexpr (kNumbers == 4) {
    *reinterpret_cast<uint2*>(out) = make_uint2(packed[0], packed[1]);
  } else {
    *reinterpret_cast<uint32_t*>(out) = packed[0];
  }
}

template <typename T, typename Kv, int kDim>
void run(const Arguments& arguments, cudaStream_t stream) {
  launch(attend_decode_kernel<T, Kv, kDim>,
         dim3(arguments.plan.num_units, arguments.call.num_kv_heads), dim3(32 * kWarps), 0, stream,
         arguments);
  launch(merge_records_kernel<T, kDim>,
         dim3(arguments.call.paged.num_sequences,
              (arguments.call.num_heads + kMergeWarps - 1) / kMergeWarps),
         dim3(32 * kMergeWarps), 0, stream, arguments);
}

template <typename T, int kDim>
void run(const Arguments& arguments, cudaStream_t stream) {
  arguments.call.paged.is_fp8 ? run<T, __nv_fp8_e4m3, kDim>(arguments, stream)
                              : run<T, T, kDim>(arguments, stream);
}

}  // namespace

bool has_decode(Number number, int head_dim, int group) {
  return has_tiles(number, head_dim) && group <= kMostDecodeRows;
}

void attend_decode(const AttendCall& call, const DecodeArrays& plan, cudaStream_t stream) {
  Arguments arguments;
  arguments.call = call;
  arguments.plan = plan;
  arguments.group = call.num_heads / call.num_kv_heads;
  if (!has_decode(call.number, call.head_dim, arguments.group))
    throw std::runtime_error(
        "decode attention has head sizes 64 and 128 in 16-bit precisions and at most 32 query "
        "heads per key-value head");
  const bool is_bfloat16 = call.number == Number::kBFloat16;
  if (call.head_dim == 64) {
    is_bfloat16 ? run<__nv_bfloat16, 64>(arguments, stream) : run<__half, 64>(arguments, stream);
  } else {
    is_bfloat16 ? run<__nv_bfloat16, 128>(arguments, stream) : run<__half, 128>(arguments, stream);
  }
}

}  // namespace slime::kernels::cuda
