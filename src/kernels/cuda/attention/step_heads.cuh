#pragma once

/// The heads of a decode step itself, as the projection left them: for its segment a thread block
/// norms and rotates the query heads, and where the segment is fresh also the step's key and value,
/// which go into the cache and are handed to the warps through shared memory.
///
/// Only this thread block may touch that row of the cache: a sequence's last page is in one
/// segment, which has no other member, and no other sequence reads it (kernels/gpu/decode_units.cpp
/// shares the pages before the last). What its own warps read there is replaced.
///
/// A head is spread over eight lanes, of which lane e has pairs [kPairs e, kPairs (e + 1)): numbers
/// of the lower half and their partners in the upper one. 16-bit numbers stay packed in registers:
/// unpacking would wait for the load as soon as it is issued.

#include "kernels/cuda/attention/decode_segments.cuh"
#include "kernels/cuda/attention/head_rotation.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::decode {

/// The result of one or two vector loads.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Numbers {
  T x[kCount];
  __device__ static const Numbers& at(const void* x) { return *static_cast<const Numbers*>(x); }
  __device__ void write_to(void* x) const { *static_cast<Numbers*>(x) = *this; }
};

/// As norm_rotate rounds, packed.
template <typename T, int kCount>
__device__ auto rounded(const float (&x)[kCount]) {
  constexpr int kInWord = 4 / static_cast<int>(sizeof(T));
  Numbers<uint32_t, kCount / kInWord> out;
#pragma unroll
  for (int i = 0; i < kCount; i += kInWord) {
    if constexpr (sizeof(T) == 1) {
      out.x[i / kInWord] = pack_fp8(x[i], x[i + 1]) | pack_fp8(x[i + 2], x[i + 3]) << 16;
    } else {
      out.x[i / kInWord] = pack<T>(x[i], x[i + 1]);
    }
  }
  return out;
}

/// What each warp finds in shared memory.
template <typename T, typename Kv, int kDim>
struct StepRows {
  alignas(16) T query[kSetRows][kDim];  // of its row set
  alignas(16) Kv key[kDim];             // where the segment is fresh
  alignas(16) Kv value[kDim];
};

/// The head that a lane works on.
template <int kDim>
struct StepHead {
  static constexpr int kPairs = kDim / 16;
  using Packed = Numbers<uint32_t, kPairs / 2>;
  int64_t offset = 0;  // of the lane's first number from AttendCall::q, in elements
  bool has_norm = false;
  Packed low, high, low_weight, high_weight;
  Numbers<float, kPairs> cosine, sine;
};

template <typename T, typename Kv, int kDim>
class StepHeads {
 public:
  using Head = StepHead<kDim>;
  /// Heads that a thread block works on at a time.
  static constexpr int kHeadsAtOnce = 32 * kWarps / 8;

  __device__ StepHeads(const Arguments& arguments, int kv_head)
      : arguments_(arguments), kv_head_(kv_head) {}

  /// Query heads come first, then the key, then the value.
  __device__ static int count(const Share& share) {
    return share.num_rows + 2 * share.segment.num_fresh;
  }

  /// One of kHeadsAtOnce heads from `first` on, with what its norm and rotation need: these loads
  /// may be issued before grid_dependency_wait().
  __device__ Head choose(const Share& share, int first) const {
    Head head{};
    if (!has_work(share, first)) return head;
    const AttendCall& call = arguments_.call;
    const RotateCall& rotate = arguments_.rotate;
    const int item = min(item_of(first), count(share) - 1), begin = kPairs * eighth();
    const bool is_query = item < share.num_rows;
    const int member = is_query ? item / arguments_.group : 0;
    const int index = is_query
                          ? kv_head_ * arguments_.group + item - member * arguments_.group
                          : call.num_heads + kv_head_ + (item - share.num_rows) * call.num_kv_heads;
    const int64_t row = Block(arguments_).member(share.segment.first_member + member).row;
    head.offset = row * call.row_stride + index * kDim + begin;
    const auto* norm = static_cast<const T*>(is_query ? rotate.q_norm_D : rotate.k_norm_D);
    head.has_norm = norm != nullptr;
    if (head.has_norm) {
      head.low_weight = Packed::at(norm + begin);
      head.high_weight = Packed::at(norm + begin + kDim / 2);
    }
    const int64_t angle = rotate.positions_T[row] * (kDim / 2) + begin;
    head.cosine = Angles::at(rotate.cos_PR + angle);
    head.sine = Angles::at(rotate.sin_PR + angle);
    return head;
  }

  /// Issues the loads of the head itself, after grid_dependency_wait().
  __device__ void read(Head& head, const Share& share, int first) const {
    if (!has_work(share, first)) return;
    const T* in = static_cast<const T*>(arguments_.call.q) + head.offset;
    head.low = Packed::at(in);
    head.high = Packed::at(in + kDim / 2);
  }

  /// Norms and rotates, and puts the heads into the rows of all warps that need them, of which
  /// `rows_of(warp)` tells where they are. `fresh`: offset of the step's key in the cache, in
  /// elements.
  template <typename RowsOf>
  __device__ void put(const Head& head, const Share& share, int first, const RowsOf& rows_of,
                      int64_t fresh) const {
    if (!has_work(share, first)) return;
    const int item = item_of(first), begin = kPairs * eighth();
    float a[kPairs], b[kPairs], squares[kPairs];
    unpack_all(head.low, a);
    unpack_all(head.high, b);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) squares[i] = square_sum(a[i], b[i]);
    const float sum = lane_sum<8>(neighbour_sum(squares));
    if (item >= count(share)) return;
    const bool is_query = item < share.num_rows;
    const bool is_value = item > share.num_rows;
    if (!is_value) {
      if (head.has_norm) {
        const float scale = norm_scale(sum, kDim, arguments_.rotate.eps);
        float low[kPairs], high[kPairs];
        unpack_all(head.low_weight, low);
        unpack_all(head.high_weight, high);
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
          a[i] = normed(a[i], scale, low[i]);
          b[i] = normed(b[i], scale, high[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kPairs; ++i) rotate_pair(a[i], b[i], head.cosine.x[i], head.sine.x[i]);
    }
    if (is_query) {
      const auto low = rounded<T>(a), high = rounded<T>(b);
      for (int warp = item / kSetRows; warp < kWarps; warp += share.sets) {
        T* to = rows_of(warp).query[item % kSetRows] + begin;
        low.write_to(to);
        high.write_to(to + kDim / 2);
      }
      return;
    }
    const auto low = rounded<Kv>(a), high = rounded<Kv>(b);
    const auto write = [&](Kv* to) {
      low.write_to(to + begin);
      high.write_to(to + begin + kDim / 2);
    };
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
      write(is_value ? rows_of(warp).value : rows_of(warp).key);
    const RotateCall& rotate = arguments_.rotate;
    write(static_cast<Kv*>(is_value ? rotate.values : rotate.keys) + fresh);
  }

 private:
  static constexpr int kPairs = Head::kPairs;
  using Packed = typename Head::Packed;
  using Angles = Numbers<float, kPairs>;

  __device__ static void unpack_all(const Packed& from, float (&to)[kPairs]) {
#pragma unroll
    for (int i = 0; i < kPairs / 2; ++i) {
      const float2 x = unpack<T>(from.x[i]);
      to[2 * i] = x.x;
      to[2 * i + 1] = x.y;
    }
  }
  __device__ static int eighth() { return static_cast<int>(threadIdx.x) % 8; }
  /// Counted as count() does; there may be none.
  __device__ static int item_of(int first) { return first + static_cast<int>(threadIdx.x) / 8; }
  /// The same for all lanes of a warp.
  __device__ static bool has_work(const Share& share, int first) {
    return first + static_cast<int>(threadIdx.x) / 32 * 4 < count(share);
  }

  const Arguments& arguments_;
  const int kv_head_;
};

}  // namespace slime::kernels::cuda::decode
