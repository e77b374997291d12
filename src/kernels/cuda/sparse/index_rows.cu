#include "kernels/cuda/attention/head_rotation.cuh"
#include "kernels/cuda/sparse/sparse.h"

/// What an indexer makes of the rows of a step, from its products: rotated and scaled queries, the normed
/// and rotated key, scaled weights of heads, all in float32. A warp has a head of a row, the first one of a
/// row its key; a lane has one of the pairs that rotate and two numbers that do not.

namespace slime::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kPairs = 32, kRotating = 2 * kPairs;
constexpr float kRootOfSize = 11.313708498984761F;  // of kIndexSize

__global__ void __launch_bounds__(kThreads) index_rows_kernel(const IndexRowsCall a) {
#if SLIME_HAS_DECODE
  using T = BFloat16;
  launch_dependents();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = blockIdx.x;
  const int line = static_cast<int>(blockIdx.y) * kWarps + warp;  // 0: the key
  const bool is_key = line == 0;
  if (line > a.num_heads) return;
  const int64_t angle = a.positions_T[row] * kPairs + lane;
  const float cosine = a.cos_PR[angle], sine = a.sin_PR[angle];
  const int first = a.rotates_pairs ? 2 * lane : lane;
  const int second = a.rotates_pairs ? first + 1 : lane + kPairs;
  const int rest = kRotating + 2 * lane;
  const int place[4] = {first, second, rest, rest + 1};
  float weight[4], bias[4];
  if (is_key) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weight[i] = to_float(static_cast<const T*>(a.norm_D)[place[i]]);
      bias[i] = to_float(static_cast<const T*>(a.norm_bias_D)[place[i]]);
    }
  }
  grid_dependency_wait();
  const T* from =
      is_key ? static_cast<const T*>(a.key_TD) + row * kIndexSize
             : static_cast<const T*>(a.query_TE) + (row * a.num_heads + line - 1) * kIndexSize;
  float x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = to_float(from[place[i]]);
  float scale = 1 / kRootOfSize;
  if (is_key) {
    scale = 1;
    const float mean = warp_sum(x[0] + x[1] + x[2] + x[3]) / kIndexSize;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] -= mean;
      squares = fmaf(x[i], x[i], squares);
    }
    const float by = norm_scale(warp_sum(squares), kIndexSize, a.eps);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = fmaf(x[i] * by, weight[i], bias[i]);
    const float of_heads = rsqrtf(static_cast<float>(a.num_heads));
    for (int head = lane; head < a.num_heads; head += 32)
      a.scaled_weight_TJ[row * a.num_heads + head] =
          a.weight_TJ[row * a.num_heads + head] * of_heads;
  }
  rotate_pair(x[0], x[1], cosine, sine);
  float* to = is_key ? a.made_key_TD + row * kIndexSize
                     : a.made_query_TJD + (row * a.num_heads + line - 1) * kIndexSize;
  // Halves, whatever rotated with each other: as the keys of prompts are.
  to[lane] = x[0] * scale;
  to[lane + kPairs] = x[1] * scale;
  *reinterpret_cast<float2*>(to + rest) = make_float2(x[2] * scale, x[3] * scale);
#endif
}

}  // namespace

void index_rows(const IndexRowsCall& call, Stream stream) {
  const int lines = call.num_heads + 1;
  launch(index_rows_kernel,
         dim3(static_cast<unsigned>(call.num_rows),
              static_cast<unsigned>((lines + kWarps - 1) / kWarps)),
         dim3(kThreads), 0, stream, call);
}

}  // namespace slime::kernels::cuda
