#include "kernels/cuda/attention.h"
#include "kernels/cuda/tensor_core.cuh"

/// Attention of one new row per sequence: bound by reading keys and values once.
///
/// A block has a unit of work (a sequence, a range of its pages) and a key-value head. Its warps
/// take pages in turn; a page of a head is 16 x D numbers in one piece, and goes from memory
/// straight into tensor-core operands:
///   scores [heads, keys] = Q K^T     a: Q, heads in the upper eight rows   b: K, as it lies
///   out^T [dims, heads] += V^T P^T   a: V, two keys interleaved            b: P, as scores came
///   out
/// While a warp works on a page, the next one is on its way. Warps add up through shared memory.
/// Units of the same sequence leave partial results, and the last one to arrive adds those up, in
/// the order of the keys.

namespace slime::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kHeads = 8;  // query heads per key-value head, at most
constexpr float kLog2E = 1.4426950408889634F;

struct Arguments {
  AttendCall call;
  UnitArrays units;
  int group = 1;
  float* partial = nullptr;    // [partials, K, kHeads, D + 2]: sums, largest score, weight
  int32_t* arrived = nullptr;  // [S, K], zero between launches
};

/// Keys of one page: those of this lane's two rows, or zeros.
template <int kDim>
struct Keys {
  uint4 x[2][kDim / 32];
};
template <int kDim>
struct Values {
  uint4 x[4][kDim / 64];
};

__device__ uint4 load_once(const void* pointer) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(pointer));
  return x;
}

template <typename T, int kDim>
__device__ void load_keys(Keys<kDim>& keys, const T* page, int group, int quarter) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < kDim / 32; ++j)
      keys.x[half][j] = load_once(page + (group + 8 * half) * kDim + 32 * j + 8 * quarter);
  }
}

/// Rows at `valid` and beyond were never written, and may be no numbers.
template <typename T, int kDim>
__device__ void load_values(Values<kDim>& values, const T* page, int group, int quarter,
                            int valid) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int key = 2 * quarter + (k & 1) + 8 * (k >> 1);
#pragma unroll
    for (int j = 0; j < kDim / 64; ++j) {
      values.x[k][j] = make_uint4(0, 0, 0, 0);
      if (key < valid) values.x[k][j] = load_once(page + key * kDim + 64 * j + 8 * group);
    }
  }
}

__device__ uint32_t part(const uint4& x, int i) {
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

template <typename T, int kDim>
__global__ void __launch_bounds__(32 * kWarps, kDim > 64 ? 3 : 4)
    attend_decode_kernel(Arguments arguments) {
  constexpr int kTiles = kDim / 16;
  __shared__ float sums[kWarps][kHeads][kDim + 4];
  __shared__ float largest_of[kWarps][kHeads], weight_of[kWarps][kHeads];
  __shared__ bool is_last;
  const AttendCall& call = arguments.call;
  const UnitArrays& units = arguments.units;
  let_next_start();
  const int unit = blockIdx.x, kv_head = blockIdx.y, num_kv_heads = call.num_kv_heads;
  if (!units.is_on_U[unit]) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / 4, quarter = lane % 4;
  const int sequence = units.sequence_U[unit], chunk = units.chunk_U[unit];
  const int first_page = call.paged.page_starts[sequence];
  const int num_pages = call.paged.page_starts[sequence + 1] - first_page;
  const int num_keys = (num_pages - 1) * kPageTokens + call.paged.last_page_tokens[sequence];
  const int chunk_pages = *units.chunk_tokens / kPageTokens;
  const int first_key =
      call.window > 0 && num_keys > call.window ? num_keys - static_cast<int>(call.window) : 0;
  const int begin = max(chunk * chunk_pages, first_key / kPageTokens);
  const int end = min((chunk + 1) * chunk_pages, num_pages);
  const int32_t* pages = call.paged.pages + first_page;
  const int64_t page_size = static_cast<int64_t>(num_kv_heads) * kPageTokens * kDim;
  const int64_t head_offset = static_cast<int64_t>(kv_head) * kPageTokens * kDim;
  const T* all_keys = static_cast<const T*>(call.paged.keys) + head_offset;
  const T* all_values = static_cast<const T*>(call.paged.values) + head_offset;
  const auto valid_in = [&](int page) { return min(num_keys - page * kPageTokens, kPageTokens); };

  Keys<kDim> keys;
  Values<kDim> values;
  int page = begin + warp;
  int64_t place = page < end ? pages[page] * page_size : 0;
  // All pages but the last were written by earlier steps: no need to wait for this one's.
  const bool is_early = page < end && page + 1 < num_pages;
  if (is_early) {
    load_keys<T, kDim>(keys, all_keys + place, group, quarter);
    load_values<T, kDim>(values, all_values + place, group, quarter, kPageTokens);
  }
  wait_for_inputs();
  if (page < end && !is_early) {
    load_keys<T, kDim>(keys, all_keys + place, group, quarter);
    load_values<T, kDim>(values, all_values + place, group, quarter, valid_in(page));
  }
  const int64_t row = call.paged.query_starts[sequence];
  uint4 query[kDim / 32];
#pragma unroll
  for (int j = 0; j < kDim / 32; ++j) {
    query[j] = make_uint4(0, 0, 0, 0);
    if (group < arguments.group)
      query[j] = *reinterpret_cast<const uint4*>(
          static_cast<const T*>(call.q) + row * call.row_stride +
          (kv_head * arguments.group + group) * kDim + 32 * j + 8 * quarter);
  }

  const float scale = call.scale * kLog2E;
  float out[kTiles][4] = {};
  float largest = -INFINITY, weight = 0;  // of head `group`; the weight is this lane's share
  for (; page < end; page += kWarps) {
    const int next = page + kWarps;
    const int64_t next_place = next < end ? pages[next] * page_size : 0;
    float score[2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < kDim / 32; ++j) {
        const uint4 q = query[j], k = keys.x[half][j];
        multiply<T>(score[half], q.x, 0, q.y, 0, k.x, k.y);
        multiply<T>(score[half], q.z, 0, q.w, 0, k.z, k.w);
      }
    }
    if (next < end) load_keys<T, kDim>(keys, all_keys + next_place, group, quarter);

    const int low = first_key - page * kPageTokens, valid = valid_in(page);
    float best = -INFINITY;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = 2 * quarter + i + 8 * half;
        score[half][i] = key >= low && key < valid ? score[half][i] * scale : -INFINITY;
        best = fmaxf(best, score[half][i]);
      }
    }
    best = fmaxf(best, __shfl_xor_sync(0xffffffffU, best, 1));
    best = fmaxf(best, __shfl_xor_sync(0xffffffffU, best, 2));
    const float fresh = fmaxf(largest, best);
    const float shrink = exp2f(largest - fresh);
    if (__any_sync(0xffffffffU, fresh != largest)) {
      const float first = __shfl_sync(0xffffffffU, shrink, 8 * quarter);
      const float second = __shfl_sync(0xffffffffU, shrink, 8 * quarter + 4);
#pragma unroll
      for (int r = 0; r < kTiles; ++r) {
        out[r][0] *= first;
        out[r][1] *= second;
        out[r][2] *= first;
        out[r][3] *= second;
      }
    }
    largest = fresh;
    weight *= shrink;
    uint32_t p[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float a = exp2f(score[half][0] - fresh), b = exp2f(score[half][1] - fresh);
      weight += a + b;
      p[half] = pack<T>(a, b);
    }
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      const uint32_t v0 = part(values.x[0][r / 4], r % 4), v1 = part(values.x[1][r / 4], r % 4);
      const uint32_t v2 = part(values.x[2][r / 4], r % 4), v3 = part(values.x[3][r / 4], r % 4);
      multiply<T>(out[r], low_halves(v0, v1), high_halves(v0, v1), low_halves(v2, v3),
                  high_halves(v2, v3), p[0], p[1]);
    }
    if (next < end)
      load_values<T, kDim>(values, all_values + next_place, group, quarter, valid_in(next));
  }

  weight += __shfl_xor_sync(0xffffffffU, weight, 1);
  weight += __shfl_xor_sync(0xffffffffU, weight, 2);
  if (quarter == 0) {
    largest_of[warp][group] = largest;
    weight_of[warp][group] = weight;
  }
#pragma unroll
  for (int r = 0; r < kTiles; ++r) {
    const int dim = 64 * (r / 4) + 8 * group + 2 * (r % 4);
    sums[warp][2 * quarter][dim] = out[r][0];
    sums[warp][2 * quarter + 1][dim] = out[r][1];
    sums[warp][2 * quarter][dim + 1] = out[r][2];
    sums[warp][2 * quarter + 1][dim + 1] = out[r][3];
  }
  __syncthreads();

  const bool is_partial = arguments.partial != nullptr;
  constexpr int kRecord = kHeads * (kDim + 2);  // of one partial result
  const auto record_of = [&](int64_t index) {
    return arguments.partial + (index * num_kv_heads + kv_head) * kRecord;
  };
  T* result =
      static_cast<T*>(call.out_TC) + (row * call.num_heads + kv_head * arguments.group) * kDim;
  for (int i = threadIdx.x; i < arguments.group * kDim; i += blockDim.x) {
    const int head = i / kDim, dim = i % kDim;
    float most = -INFINITY;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) most = fmaxf(most, largest_of[w][head]);
    float sum = 0, total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float share = largest_of[w][head] == -INFINITY ? 0 : exp2f(largest_of[w][head] - most);
      sum += share * sums[w][head][dim];
      total += share * weight_of[w][head];
    }
    if (!is_partial) {
      result[i] = from_float<T>(sum / total);
      continue;
    }
    float* record = record_of(units.partial_starts[sequence] + chunk);
    record[head * (kDim + 2) + dim] = sum;
    if (dim == 0) {
      record[head * (kDim + 2) + kDim] = most;
      record[head * (kDim + 2) + kDim + 1] = total;
    }
  }
  if (!is_partial) return;

  __threadfence();
  __syncthreads();
  const int num_chunks = units.partial_starts[sequence + 1] - units.partial_starts[sequence];
  int32_t* arrived = arguments.arrived + sequence * num_kv_heads + kv_head;
  if (threadIdx.x == 0) is_last = atomicAdd(arrived, 1) == num_chunks - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  if (threadIdx.x == 0) *arrived = 0;
  // The chunks' shares first, all at once; then the sums, whose loads do not wait for each other.
  const int64_t first_record = units.partial_starts[sequence];
  float* share_CH = &sums[0][0][0];
  for (int i = threadIdx.x; i < num_chunks * kHeads; i += blockDim.x)
    share_CH[i] = __ldcg(record_of(first_record + i / kHeads) + i % kHeads * (kDim + 2) + kDim);
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < arguments.group) {
    float most = -INFINITY;
    for (int c = 0; c < num_chunks; ++c) most = fmaxf(most, share_CH[c * kHeads + threadIdx.x]);
    for (int c = 0; c < num_chunks; ++c) {
      float& share = share_CH[c * kHeads + threadIdx.x];
      share = share == -INFINITY ? 0 : exp2f(share - most);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < arguments.group * kDim; i += blockDim.x) {
    const int head = i / kDim, dim = i % kDim;
    float sum = 0, total = 0;
#pragma unroll 8
    for (int c = 0; c < num_chunks; ++c) {
      const float* record = record_of(first_record + c) + head * (kDim + 2);
      const float share = share_CH[c * kHeads + head];
      sum += share * __ldcg(record + dim);
      total += share * __ldcg(record + kDim + 1);
    }
    result[i] = from_float<T>(sum / total);
  }
}

template <typename T, int kDim>
void run(const Arguments& arguments, cudaStream_t stream) {
  launch(attend_decode_kernel<T, kDim>,
         dim3(arguments.units.num_units, arguments.call.num_kv_heads), dim3(32 * kWarps), 0, stream,
         arguments);
}

}  // namespace

bool has_decode(Number number, int head_dim, int group) {
  return has_tiles(number, head_dim) && group <= kHeads;
}

int64_t decode_partial_floats(int64_t partials, int num_kv_heads, int head_dim) {
  return partials * num_kv_heads * kHeads * (head_dim + 2);
}

void attend_decode(const AttendCall& call, const UnitArrays& units, float* partial,
                   int32_t* arrived, cudaStream_t stream) {
  Arguments arguments;
  arguments.call = call;
  arguments.units = units;
  arguments.group = call.num_heads / call.num_kv_heads;
  arguments.partial = partial;
  arguments.arrived = arrived;
  if (!has_decode(call.number, call.head_dim, arguments.group))
    throw std::runtime_error(
        "decode attention has head sizes 64 and 128 in 16-bit precisions and "
        "at most 8 query heads per key-value head");
  const bool is_bfloat16 = call.number == Number::kBFloat16;
  if (call.head_dim == 64) {
    is_bfloat16 ? run<__nv_bfloat16, 64>(arguments, stream) : run<__half, 64>(arguments, stream);
  } else {
    is_bfloat16 ? run<__nv_bfloat16, 128>(arguments, stream) : run<__half, 128>(arguments, stream);
  }
}

}  // namespace slime::kernels::cuda
