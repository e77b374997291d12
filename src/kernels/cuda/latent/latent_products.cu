#include "kernels/cuda/attention/head_rotation.cuh"
#include "kernels/cuda/latent/latent_operands.cuh"

/// The products around attention over latents, with a matrix of each head: queries with the matrix that
/// would expand keys, attended latents with the one that would expand values. And what else the rows of a
/// step need: norm, rotation, their places in the cache.
///
/// A thread block has a tile of a head's outputs, whose weights it prefetches, and up to 64 rows.

namespace slime::kernels::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kChunk = 64;         // rows of a thread block
constexpr int kQueryOutputs = 64;  // numbers of the latent, of a thread block
constexpr int kStagedRecords =
    20;  // that are merged at once; the next kernel's blocks need room too
constexpr int kFewValues = 16, kManyValues = 32;  // outputs of a thread block
constexpr int kPad =
    8;  // numbers behind a row in shared memory, so that eight lie in different banks
constexpr int kSteps = kLatentRank / 16;

constexpr int padded_bytes(int numbers) { return 2 * (numbers + kPad); }

#if SLIME_HAS_DECODE

/// Asks for rows of `numbers` (a multiple of eight) at `stride`, into shared memory; rows at `valid` and
/// beyond become zeros.
__device__ inline void copy_in(SharedAddress to, const void* from, int64_t stride, int rows,
                               int valid, int numbers) {
  const auto pieces = static_cast<unsigned>(numbers / 8);
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < rows * pieces; i += kThreads) {
    const int row = static_cast<int>(i / pieces), piece = static_cast<int>(i % pieces);
    const bool is_there = row < valid;
    copy_piece(to + row * padded_bytes(numbers) + 16 * piece,
               static_cast<const BFloat16*>(from) + (is_there ? row : 0) * stride + 8 * piece,
               is_there ? 16 : 0);
  }
}

/// Norm, rotation and places of one row.
__device__ inline void place_row(const LatentStep& call, int64_t row) {
  using T = BFloat16;
  __shared__ float scratch[33];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t position = call.positions_T[row];
  const auto weight = static_cast<const Pack<T, 4>*>(call.latent_norm_L)[thread];
  T* own = static_cast<T*>(call.rows) + int64_t{call.slot_T[row]} * kLatentRow;
  grid_dependency_wait();
  const auto latent = *reinterpret_cast<const Pack<T, 4>*>(static_cast<const T*>(call.latent) +
                                                           row * call.latent_stride + 4 * thread);
  float squares = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) squares += to_float(latent.x[j]) * to_float(latent.x[j]);
  const float scale = norm_scale(block_sum(squares, scratch), kLatentRank, call.eps);
  Pack<T, 4> normed;
#pragma unroll
  for (int j = 0; j < 4; ++j)
    normed.x[j] = from_float<T>(to_float(latent.x[j]) * scale * to_float(weight.x[j]));
  *reinterpret_cast<Pack<T, 4>*>(own + kLatentRotary + 4 * thread) = normed;

  constexpr int kPairs = kLatentRotary / 2;
  const int head_size = call.plain_dim + kLatentRotary;
  for (int i = thread; i < (call.num_heads + 1) * kPairs; i += kThreads) {
    const int head = i / kPairs, pair = i % kPairs;
    const bool is_key = head == call.num_heads;
    const T* from = is_key ? static_cast<const T*>(call.rotary_key) + row * call.rotary_stride
                           : static_cast<const T*>(call.query) + row * call.query_stride +
                                 head * head_size + call.plain_dim;
    T* to = is_key ? own : static_cast<T*>(call.q_TNE) + (row * call.num_heads + head) * kLatentRow;
    float a = to_float(from[call.rotates_pairs ? 2 * pair : pair]);
    float b = to_float(from[call.rotates_pairs ? 2 * pair + 1 : pair + kPairs]);
    const int64_t angle = position * kPairs + pair;
    rotate_pair(a, b, call.cos_PR[angle], call.sin_PR[angle]);
    to[pair] = from_float<T>(a);
    to[pair + kPairs] = from_float<T>(b);
  }
}

#endif

/// The first blocks have tiles of queries, the others a row each.
__global__ void __launch_bounds__(kThreads) latent_step_kernel(const LatentStep call, int chunks) {
#if SLIME_HAS_DECODE
  using T = BFloat16;
  SLIME_DYNAMIC_SHARED(memory);
  launch_dependents();
  constexpr int kTiles = kLatentRank / kQueryOutputs;
  const int block = static_cast<int>(blockIdx.x), tiles = kTiles * call.num_heads;
  if (block >= tiles * chunks) {
    place_row(call, block - tiles * chunks);
    return;
  }
  const int head = block % tiles / kTiles, tile = block % kTiles;
  const int64_t first = int64_t{block / tiles} * kChunk;
  const int count = static_cast<int>(min(int64_t{kChunk}, call.num_rows - first));
  const int sets = (count + 15) / 16;
  const int plain = call.plain_dim, head_size = plain + kLatentRotary;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const SharedAddress weights = shared_address(memory);
  const SharedAddress x = weights + plain * padded_bytes(kQueryOutputs);
  copy_in(weights,
          static_cast<const T*>(call.expand) +
              int64_t{head} * (plain + call.value_dim) * kLatentRank + tile * kQueryOutputs,
          kLatentRank, plain, plain, kQueryOutputs);
  grid_dependency_wait();
  copy_in(x,
          static_cast<const T*>(call.query) + first * call.query_stride + int64_t{head} * head_size,
          call.query_stride, 16 * sets, count, plain);
  wait_for_pieces();
  __syncthreads();
  const SharedAddress weight_line =
      latent::line_of_sixteen(weights + 2 * 16 * warp, padded_bytes(kQueryOutputs));
  for (int set = 0; set < sets; ++set) {
    const SharedAddress line =
        latent::line_of_sixteen(x + 16 * set * padded_bytes(plain), padded_bytes(plain));
    float sum[2][4] = {};
#pragma unroll 4
    for (int step = 0; step < plain / 16; ++step) {
      uint32_t a[4], b[4];
      load_matrices(a, line + 32 * step);
      load_turned(b, weight_line + 16 * step * padded_bytes(kQueryOutputs));
      multiply<T>(sum[0], a[0], a[1], a[2], a[3], b[0], b[1]);
      multiply<T>(sum[1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * set + lane / 4 + 8 * half;
      if (row >= count) continue;
      T* to = static_cast<T*>(call.q_TNE) + ((first + row) * call.num_heads + head) * kLatentRow +
              kLatentRotary + tile * kQueryOutputs + 16 * warp + 2 * (lane % 4);
#pragma unroll
      for (int n = 0; n < 2; ++n)
        *reinterpret_cast<uint32_t*>(to + 8 * n) = pack<T>(sum[n][2 * half], sum[n][2 * half + 1]);
    }
  }
#endif
}

/// kOutputs: of a thread block. Of up to 16 rows the warps share the numbers of the latent; of more they
/// have 16 rows each.
template <int kOutputs>
__global__ void __launch_bounds__(kThreads)
    latent_values_kernel(const LatentValues call, const DecodeArrays plan, bool merges) {
#if SLIME_HAS_DECODE
  using T = BFloat16;
  constexpr int kPairs = kOutputs / 16;  // of tiles of eight outputs, which are loaded together
  SLIME_DYNAMIC_SHARED(memory);
  __shared__ float sums[kWarps][16][kOutputs + 1];
  launch_dependents();
  const int tiles = call.value_dim / kOutputs;
  const int head = static_cast<int>(blockIdx.x) / tiles,
            tile = static_cast<int>(blockIdx.x) % tiles;
  const int64_t first = int64_t{blockIdx.y} * kChunk;
  const int count = static_cast<int>(min(int64_t{kChunk}, call.num_rows - first));
  const int sets = (count + 15) / 16;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kPitch = padded_bytes(kLatentRank);
  const SharedAddress weights = shared_address(memory), x = weights + kOutputs * kPitch;
  copy_in(weights,
          static_cast<const T*>(call.expand) + (int64_t{head} * (call.plain_dim + call.value_dim) +
                                                call.plain_dim + tile * kOutputs) *
                                                   kLatentRank,
          kLatentRank, kOutputs, kOutputs, kLatentRank);
  int2 records[kMostMergedRows] = {};
  if (merges) {
#pragma unroll
    for (int row = 0; row < kMostMergedRows; ++row)
      if (row < count) records[row] = latent::records_of(plan, call.chosen, first + row);
  }
  grid_dependency_wait();
  const T* from = static_cast<const T*>(call.x_TNL) + (first * call.num_heads + head) * kLatentRank;
  const int64_t stride = int64_t{call.num_heads} * kLatentRank;
  if (merges) {
#pragma unroll
    for (int row = 0; row < kMostMergedRows; ++row) {
      uint2 four = make_uint2(0, 0);
      if (row < count) {
        if (records[row].y > 0) {
          const float4 sum = latent::merged_four<kStagedRecords>(
              plan, call.num_heads, records[row].x, records[row].y, head,
              static_cast<int>(threadIdx.x), x + 16 * kPitch + 16 * threadIdx.x, 16 * kThreads);
          four = make_uint2(pack<T>(sum.x, sum.y), pack<T>(sum.z, sum.w));
        } else {
          four = load_past_l1(reinterpret_cast<const uint2*>(from + row * stride) + threadIdx.x);
        }
      }
      store_shared(x + row * kPitch + 8 * threadIdx.x, four);
    }
    for (int row = kMostMergedRows; row < 16 * sets; ++row)
      store_shared(x + row * kPitch + 8 * threadIdx.x, make_uint2(0, 0));
  } else {
    copy_in(x, from, stride, 16 * sets, count, kLatentRank);
  }
  wait_for_pieces();
  __syncthreads();
  const bool is_shared = call.num_rows <= 16;
  const int first_step = is_shared ? kSteps / kWarps * warp : 0;
  const int steps = is_shared ? kSteps / kWarps : kSteps;
  const int set = is_shared ? 0 : warp;
  // Matrices 0 and 1: inputs 0 to 15 of the first eight outputs; 2 and 3: of the others.
  const SharedAddress weight_line =
      weights + (lane % 8 + 8 * (lane / 16)) * kPitch + 16 * (lane / 8 % 2) + 32 * first_step;
  float sum[2 * kPairs][4] = {}, more[2 * kPairs][4] = {};
  if (set < sets) {
    const SharedAddress line =
        latent::line_of_sixteen(x + 16 * set * kPitch, kPitch) + 32 * first_step;
#pragma unroll 2
    for (int step = 0; step < steps; step += 2) {
      uint32_t a[4], c[4];
      load_matrices(a, line + 32 * step);
      load_matrices(c, line + 32 * (step + 1));
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
        uint32_t b[4], d[4];
        load_matrices(b, weight_line + 16 * p * kPitch + 32 * step);
        load_matrices(d, weight_line + 16 * p * kPitch + 32 * (step + 1));
        multiply<T>(sum[2 * p], a[0], a[1], a[2], a[3], b[0], b[1]);
        multiply<T>(sum[2 * p + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
        multiply<T>(more[2 * p], c[0], c[1], c[2], c[3], d[0], d[1]);
        multiply<T>(more[2 * p + 1], c[0], c[1], c[2], c[3], d[2], d[3]);
      }
    }
  }
  const int64_t width = int64_t{call.num_heads} * call.value_dim;
  T* to =
      static_cast<T*>(call.y_TC) + first * width + int64_t{head} * call.value_dim + tile * kOutputs;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int in_set = lane / 4 + 8 * half, row = 16 * set + in_set;
#pragma unroll
    for (int n = 0; n < 2 * kPairs; ++n) {
      const int output = 8 * n + 2 * (lane % 4);
      const float low = sum[n][2 * half] + more[n][2 * half];
      const float high = sum[n][2 * half + 1] + more[n][2 * half + 1];
      if (is_shared) {
        sums[warp][in_set][output] = low;
        sums[warp][in_set][output + 1] = high;
      } else if (row < count) {
        *reinterpret_cast<uint32_t*>(to + row * width + output) = pack<T>(low, high);
      }
    }
  }
  if (!is_shared) return;
  __syncthreads();
  for (int i = threadIdx.x; i < count * kOutputs; i += kThreads) {
    const int row = i / kOutputs, output = i % kOutputs;
    float all = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) all += sums[w][row][output];
    to[row * width + output] = from_float<T>(all);
  }
#endif
}

int rounded_rows(int64_t rows) {
  return static_cast<int>(rows >= kChunk ? kChunk : (rows + 15) / 16 * 16);
}

unsigned chunks_of(int64_t rows) { return static_cast<unsigned>((rows + kChunk - 1) / kChunk); }

template <int kOutputs>
void run_values(const LatentValues& call, Stream stream) {
  constexpr int kPitch = padded_bytes(kLatentRank);
  constexpr auto kKernel = latent_values_kernel<kOutputs>;
  allow_shared_memory<kKernel>((kOutputs + kChunk) * kPitch);
  const int staged_bytes = call.plan == nullptr ? 0 : 16 * kThreads * kStagedRecords;
  const int bytes = (kOutputs + rounded_rows(call.num_rows)) * kPitch + staged_bytes;
  launch(kKernel,
         dim3(static_cast<unsigned>(call.num_heads * (call.value_dim / kOutputs)),
              chunks_of(call.num_rows)),
         dim3(kThreads), bytes, stream, call, call.plan == nullptr ? DecodeArrays{} : *call.plan,
         call.plan != nullptr);
}

}  // namespace

bool has_latent_kernels(int rank, int rotary_dim, int plain_dim, int value_dim) {
  return has_decode_kernels() && rank == kLatentRank && rotary_dim == kLatentRotary &&
         plain_dim % 16 == 0 && plain_dim <= kMostLatentHead && value_dim % kFewValues == 0;
}

void latent_step(const LatentStep& call, Stream stream) {
  constexpr int kMostBytes =
      kMostLatentHead * padded_bytes(kQueryOutputs) + kChunk * padded_bytes(kMostLatentHead);
  allow_shared_memory<latent_step_kernel>(kMostBytes);
  const int bytes = call.plain_dim * padded_bytes(kQueryOutputs) +
                    rounded_rows(call.num_rows) * padded_bytes(call.plain_dim);
  const unsigned chunks = chunks_of(call.num_rows);
  const int64_t blocks =
      int64_t{call.num_heads} * (kLatentRank / kQueryOutputs) * chunks + call.num_rows;
  launch(latent_step_kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), bytes, stream,
         call, static_cast<int>(chunks));
}

void latent_values(const LatentValues& call, Stream stream) {
  // Larger tiles read latents less often, where there are enough of them.
  const int64_t blocks =
      int64_t{call.num_heads} * (call.value_dim / kManyValues) * chunks_of(call.num_rows);
  call.value_dim % kManyValues == 0 && blocks >= num_processors()
      ? run_values<kManyValues>(call, stream)
      : run_values<kFewValues>(call, stream);
}

}  // namespace slime::kernels::cuda
