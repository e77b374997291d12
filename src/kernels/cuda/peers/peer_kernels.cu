#include "kernels/cuda/peers/peer_kernels.h"

#include <type_traits>

namespace slime::kernels::cuda {
namespace {

constexpr int kSpinsBetweenLooks = 1024;
constexpr int kMostThreads = 1024;
constexpr int kBlocksOfProcessor = 2;  // of at most half as many threads

/// 16 bytes of numbers.
using Words = uint4;

__device__ uint64_t now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Memory that another device writes, or reads, while this kernel runs: past the caches that are not
// kept coherent between them.

__device__ void store_words(Words* to, const Words& x) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
}
__device__ Words load_words(const Words* from) {
  Words x;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from)
               : "memory");
  return x;
}
__device__ void store(float4* to, const float4& x) {
  store_words(reinterpret_cast<Words*>(to), {__float_as_uint(x.x), __float_as_uint(x.y),
                                             __float_as_uint(x.z), __float_as_uint(x.w)});
}
__device__ void store(float* to, float x) {
  asm volatile("st.volatile.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
__device__ float4 load(const float4* from) {
  const Words x = load_words(reinterpret_cast<const Words*>(from));
  return make_float4(__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z),
                     __uint_as_float(x.w));
}
__device__ float load(const float* from) {
  float x;
  asm volatile("ld.volatile.global.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
  return x;
}
__device__ void release_flag(uint32_t* to, uint32_t x) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
__device__ uint32_t acquire_flag(const uint32_t* from) {
  uint32_t x;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}

/// The block's slots in `owner`'s memory, into which `sender` writes.
struct Slots {
  char* begin;
  __device__ Words* words() const {
    return reinterpret_cast<Words*>(begin + blockIdx.x * PeerLayout::kWordSlot);
  }
  __device__ Words* row() const {
    return reinterpret_cast<Words*>(begin + PeerLayout::kRows + blockIdx.x * PeerLayout::kRowSlot);
  }
  __device__ uint32_t* flag() const {
    return reinterpret_cast<uint32_t*>(begin + PeerLayout::kFlags) + blockIdx.x;
  }
};
__device__ Slots slots(const PeerRanks& ranks, int owner, int sender, uint32_t call) {
  const int64_t place = static_cast<int64_t>(call % 2) * ranks.size + sender;
  return {ranks.memory[owner] + place * PeerLayout::kOfSender};
}

/// Of a wait: looked at now and then, not with each spin.
class Patience {
 public:
  __device__ explicit Patience(const PeerRanks& ranks) : ranks_(ranks) {}

  /// Once for each unsuccessful look at what is waited for. True: it will not come.
  __device__ bool is_over(int peer) {
    if (++spins_ % kSpinsBetweenLooks != 0) return false;
    if (volatile_load(&ranks_.state->has_failed) != 0) return true;
    const uint64_t now = now_ns();
    if (begin_ == 0) begin_ = now;
    if (now - begin_ < ranks_.deadline_ns && volatile_load(&ranks_.control->is_aborted) == 0)
      return false;
    *reinterpret_cast<volatile uint32_t*>(&ranks_.control->failed_peer) =
        static_cast<uint32_t>(peer);
    __threadfence_system();
    *reinterpret_cast<volatile uint32_t*>(&ranks_.control->has_failed) = 1;
    *reinterpret_cast<volatile uint32_t*>(&ranks_.state->has_failed) = 1;
    return true;
  }

 private:
  static __device__ uint32_t volatile_load(const uint32_t* from) {
    return *reinterpret_cast<const volatile uint32_t*>(from);
  }

  const PeerRanks& ranks_;
  uint64_t begin_ = 0;
  uint32_t spins_ = 0;
};

/// One call, as a thread block sees it.
struct Call {
  uint32_t number;
  __device__ static Call begin(const PeerRanks& ranks) {
    return {*reinterpret_cast<const volatile uint32_t*>(&ranks.state->num_calls[blockIdx.x]) + 1};
  }
  /// When all threads of the block have begun.
  __device__ void end(const PeerRanks& ranks) const {
    if (threadIdx.x == 0) ranks.state->num_calls[blockIdx.x] = number;
  }
};

/// Sends pack i of the block's row to the others.
template <bool kFlagsWords>
__device__ void send(const PeerRanks& ranks, const Call& call, int i, const Words& x) {
  for (int peer = 0; peer < ranks.size; ++peer) {
    if (peer == ranks.rank) continue;
    const Slots to = slots(ranks, peer, ranks.rank, call.number);
    if constexpr (kFlagsWords) {
      store_words(to.words() + 2 * i, {x.x, call.number, x.y, call.number});
      store_words(to.words() + 2 * i + 1, {x.z, call.number, x.w, call.number});
    } else {
      store_words(to.row() + i, x);
    }
  }
}

/// Behind all of the row's send(), and before its receive().
template <bool kFlagsWords>
__device__ void meet(const PeerRanks& ranks, const Call& call) {
  if constexpr (!kFlagsWords) {
    __syncthreads();
    const int peer = static_cast<int>(threadIdx.x);
    if (peer < ranks.size && peer != ranks.rank) {
      __threadfence_system();
      release_flag(slots(ranks, peer, ranks.rank, call.number).flag(), call.number);
      const uint32_t* flag = slots(ranks, ranks.rank, peer, call.number).flag();
      Patience patience(ranks);
      while (acquire_flag(flag) != call.number && !patience.is_over(peer)) {
      }
    }
    __syncthreads();
  }
}

template <bool kFlagsWords>
__device__ Words receive(const PeerRanks& ranks, const Call& call, int peer, int i) {
  const Slots from = slots(ranks, ranks.rank, peer, call.number);
  if constexpr (!kFlagsWords) return load_words(from.row() + i);
  Patience patience(ranks);
  Words low, high;
  do {
    low = load_words(from.words() + 2 * i);
    high = load_words(from.words() + 2 * i + 1);
    if (low.y == call.number && low.w == call.number && high.y == call.number &&
        high.w == call.number)
      break;
  } while (!patience.is_over(peer));
  return {low.x, low.z, high.x, high.z};
}

template <typename T>
__device__ void add(float (&sum)[Pack<T>::kSize], const Words& words) {
  const auto& numbers = reinterpret_cast<const Pack<T>&>(words);
#pragma unroll
  for (int j = 0; j < Pack<T>::kSize; ++j) sum[j] += to_float(numbers.x[j]);
}

/// The sum over the ranks of pack i of the row, of which this one has `own`.
template <typename T, bool kFlagsWords>
__device__ void sum_over_ranks(const PeerRanks& ranks, const Call& call, int i, const Words& own,
                               float (&sum)[Pack<T>::kSize]) {
#pragma unroll
  for (int j = 0; j < Pack<T>::kSize; ++j) sum[j] = 0;
  for (int peer = 0; peer < ranks.size; ++peer)
    add<T>(sum, peer == ranks.rank ? own : receive<kFlagsWords>(ranks, call, peer, i));
}

/// A row of the call is what a thread block has: `row_packs` packs, of which a thread has up to kHeld.
template <typename T, int kHeld, bool kFlagsWords>
__global__ void __launch_bounds__(kMostThreads)
    peer_sum_kernel(T* x_N, int64_t packs, int row_packs, const __grid_constant__ PeerRanks ranks) {
  launch_dependents();
  grid_dependency_wait();
  const Call call = Call::begin(ranks);
  auto* x = reinterpret_cast<Words*>(x_N);
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * row_packs;
  Words own[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = threadIdx.x + h * blockDim.x;
    if (i >= row_packs || begin + i >= packs) continue;
    own[h] = x[begin + i];
    send<kFlagsWords>(ranks, call, i, own[h]);
  }
  meet<kFlagsWords>(ranks, call);
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = threadIdx.x + h * blockDim.x;
    if (i >= row_packs || begin + i >= packs) continue;
    float sum[Pack<T>::kSize];
    sum_over_ranks<T, kFlagsWords>(ranks, call, i, own[h], sum);
    auto& numbers = reinterpret_cast<Pack<T>&>(own[h]);
#pragma unroll
    for (int j = 0; j < Pack<T>::kSize; ++j) numbers.x[j] = from_float<T>(sum[j]);
    x[begin + i] = own[h];
  }
  __syncthreads();
  call.end(ranks);
}

/// What this rank has of pack i of the block's row.
__device__ Words own_part(const PeerAddNorm& norm, int i, int row_packs) {
  using T = __nv_bfloat16;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * row_packs + i;
  if (norm.partial_TH != nullptr && norm.bias_H == nullptr)
    return reinterpret_cast<const Words*>(norm.partial_TH)[at];
  float sum[8] = {};
  if (norm.bias_H != nullptr) add<T>(sum, reinterpret_cast<const Words*>(norm.bias_H)[i]);
  if (norm.partial_TH != nullptr) add<T>(sum, reinterpret_cast<const Words*>(norm.partial_TH)[at]);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * row_packs;
  for (int split = 0; split < norm.num_splits; ++split) {
    const auto* from =
        reinterpret_cast<const float4*>(norm.partials_STH) + 2 * (split * stride + at);
    const float4 low = from[0], high = from[1];
    sum[0] += low.x;
    sum[1] += low.y;
    sum[2] += low.z;
    sum[3] += low.w;
    sum[4] += high.x;
    sum[5] += high.y;
    sum[6] += high.z;
    sum[7] += high.w;
  }
  Pack<T> rounded;
#pragma unroll
  for (int j = 0; j < 8; ++j) rounded.x[j] = from_float<T>(sum[j]);
  return reinterpret_cast<const Words&>(rounded);
}

template <int kHeld, bool kFlagsWords>
__global__ void __launch_bounds__(kMostThreads)
    peer_add_norm_kernel(const __grid_constant__ PeerAddNorm norm, int row_packs,
                         float inverse_hidden, const __grid_constant__ PeerRanks ranks) {
  using T = __nv_bfloat16;
  __shared__ float scratch[33];
  launch_dependents();
  Words weight[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = threadIdx.x + h * blockDim.x;
    if (i < row_packs) weight[h] = reinterpret_cast<const Words*>(norm.weight_H)[i];
  }
  grid_dependency_wait();
  const Call call = Call::begin(ranks);
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * row_packs;
  Words held[kHeld], residual[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = threadIdx.x + h * blockDim.x;
    if (i >= row_packs) continue;
    held[h] = own_part(norm, i, row_packs);
    send<kFlagsWords>(ranks, call, i, held[h]);
    residual[h] = reinterpret_cast<const Words*>(norm.residual_TH)[begin + i];
  }
  meet<kFlagsWords>(ranks, call);
  float squares = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = threadIdx.x + h * blockDim.x;
    if (i >= row_packs) continue;
    float sum[Pack<T>::kSize];
    sum_over_ranks<T, kFlagsWords>(ranks, call, i, held[h], sum);
    add<T>(sum, residual[h]);
    auto& numbers = reinterpret_cast<Pack<T>&>(held[h]);
#pragma unroll
    for (int j = 0; j < Pack<T>::kSize; ++j) {
      numbers.x[j] = from_float<T>(sum[j]);
      const float value = to_float(numbers.x[j]);
      squares += value * value;
    }
    reinterpret_cast<Words*>(norm.residual_TH)[begin + i] = held[h];
  }
  const float scale = rsqrtf(block_sum(squares, scratch) * inverse_hidden + norm.eps);
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = threadIdx.x + h * blockDim.x;
    if (i >= row_packs) continue;
    auto& numbers = reinterpret_cast<Pack<T>&>(held[h]);
    const auto& factors = reinterpret_cast<const Pack<T>&>(weight[h]);
#pragma unroll
    for (int j = 0; j < Pack<T>::kSize; ++j)
      numbers.x[j] = from_float<T>(to_float(numbers.x[j]) * scale * to_float(factors.x[j]));
    reinterpret_cast<Words*>(norm.out_TH)[begin + i] = held[h];
  }
  call.end(ranks);
}

/// A thread block has `piece` columns of one row of each rank. kVector: rows begin at multiples of 16
/// bytes here; what travels does not depend on it.
template <bool kVector>
__global__ void __launch_bounds__(kMostThreads / kBlocksOfProcessor, kBlocksOfProcessor)
    peer_gather_kernel(const __grid_constant__ PeerGather gather, int blocks_of_row, int piece,
                       const __grid_constant__ PeerRanks ranks) {
  using T = std::conditional_t<kVector, float4, float>;
  constexpr int kSize = sizeof(T) / sizeof(float);
  launch_dependents();
  grid_dependency_wait();
  const Call call = Call::begin(ranks);
  const int row = blockIdx.x / blocks_of_row, begin = blockIdx.x % blocks_of_row * piece;
  float* out = gather.out_RC + row * gather.columns;
  const auto each = [&](int columns, const auto& body) {
    const int end = min(begin + piece, columns);
    for (int i = begin + kSize * static_cast<int>(threadIdx.x); i < end;
         i += kSize * static_cast<int>(blockDim.x))
      body(i);
  };
  each(gather.own_columns, [&](int i) {
    const T x = *reinterpret_cast<const T*>(gather.own_RV + int64_t{row} * gather.own_columns + i);
    for (int peer = 0; peer < ranks.size; ++peer) {
      if (peer == ranks.rank) continue;
      auto* to = reinterpret_cast<float*>(slots(ranks, peer, ranks.rank, call.number).row());
      store(reinterpret_cast<T*>(to + i - begin), x);
    }
    *reinterpret_cast<T*>(out + int64_t{ranks.rank} * gather.room + i) = x;
  });
  meet<false>(ranks, call);
  for (int peer = 0; peer < ranks.size; ++peer) {
    if (peer == ranks.rank) continue;
    const auto* from =
        reinterpret_cast<const float*>(slots(ranks, ranks.rank, peer, call.number).row());
    const int64_t first = int64_t{peer} * gather.room;
    const int64_t left = gather.columns - first;
    each(left < gather.room ? static_cast<int>(left) : gather.room, [&](int i) {
      *reinterpret_cast<T*>(out + first + i) = load(reinterpret_cast<const T*>(from + i - begin));
    });
  }
  call.end(ranks);
}

/// How a row goes over a thread block: with as many threads as it has packs where the blocks have a
/// multiprocessor each.
struct RowShape {
  int threads = 0, held = 1;  // packs that a thread has at most: 1, 2 or 4
};
RowShape row_shape(int64_t rows, int row_packs) {
  const int most = rows <= num_processors() ? kMostThreads : kMostThreads / kBlocksOfProcessor;
  const int whole = (row_packs + 31) / 32 * 32;
  RowShape shape{.threads = whole < most ? whole : most};
  while (shape.held * shape.threads < row_packs) shape.held *= 2;
  return shape;
}

/// Calls body(std::integral_constant of `held`).
template <typename Body>
void with_held(int held, const Body& body) {
  if (held == 1) return body(std::integral_constant<int, 1>{});
  if (held == 2) return body(std::integral_constant<int, 2>{});
  return body(std::integral_constant<int, 4>{});
}

int most_rows(bool flags_words) {
  return flags_words && kMostFlaggedWordRows < most_peer_rows() ? kMostFlaggedWordRows
                                                                : most_peer_rows();
}

constexpr int kMostGatherPiece = kMostPeerRowPacks * 4;  // numbers of a block

}  // namespace

int most_peer_rows() {
  const int resident = kBlocksOfProcessor * num_processors();
  return resident < kMostPeerRows ? resident : kMostPeerRows;
}

void peer_sum(Number number, void* x_N, int64_t bytes, bool flags_words, const PeerRanks& ranks,
              cudaStream_t stream) {
  const int64_t packs = bytes / 16;
  int row_packs = 128;  // a small sum goes through many blocks of few threads
  while ((packs + row_packs - 1) / row_packs > most_rows(flags_words)) row_packs *= 2;
  if (bytes % 16 != 0 || row_packs > kMostPeerRowPacks)
    throw std::runtime_error("a sum over peers is of another size");
  const int64_t rows = (packs + row_packs - 1) / row_packs;
  const RowShape shape = row_shape(rows, row_packs);
  with_type(number, [&](auto zero) {
    using T = decltype(zero);
    with_held(shape.held, [&](auto held) {
      const auto kernel = flags_words ? peer_sum_kernel<T, decltype(held)::value, true>
                                      : peer_sum_kernel<T, decltype(held)::value, false>;
      launch(kernel, dim3(rows), dim3(shape.threads), 0, stream, static_cast<T*>(x_N), packs,
             row_packs, ranks);
    });
  });
}

int peer_gather_rows(int room) {
  return most_peer_rows() / ((room + kMostGatherPiece - 1) / kMostGatherPiece);
}

void peer_gather(const PeerGather& call, const PeerRanks& ranks, cudaStream_t stream) {
  if (call.rows > peer_gather_rows(call.room) || call.own_columns > call.room)
    throw std::runtime_error("a gather of columns from peers is of another size");
  const int blocks_of_row = most_peer_rows() / call.rows;
  const int piece = (call.room + 4 * blocks_of_row - 1) / (4 * blocks_of_row) * 4;
  const auto is_whole = [](int64_t columns) { return columns % 4 == 0; };
  const bool is_vector = is_whole(call.own_columns) && is_whole(call.columns) &&
                         is_whole(call.room) && reinterpret_cast<uintptr_t>(call.own_RV) % 16 == 0;
  launch(is_vector ? peer_gather_kernel<true> : peer_gather_kernel<false>,
         dim3(call.rows * blocks_of_row), dim3(256), 0, stream, call, blocks_of_row, piece, ranks);
}

void peer_add_norm(const PeerAddNorm& call, bool flags_words, const PeerRanks& ranks,
                   cudaStream_t stream) {
  const int row_packs = call.hidden / 8;
  if (call.hidden % 8 != 0 || row_packs > kMostPeerRowPacks || call.rows > most_rows(flags_words))
    throw std::runtime_error("a sum over peers is of another size");
  const RowShape shape = row_shape(call.rows, row_packs);
  with_held(shape.held, [&](auto held) {
    const auto kernel = flags_words ? peer_add_norm_kernel<decltype(held)::value, true>
                                    : peer_add_norm_kernel<decltype(held)::value, false>;
    launch(kernel, dim3(call.rows), dim3(shape.threads), 0, stream, call, row_packs,
           1.0F / static_cast<float>(call.hidden), ranks);
  });
}

}  // namespace slime::kernels::cuda
