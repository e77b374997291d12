#include "core/divide_up.h"
#include "kernels/cuda/delta/paged_delta.h"
#include "kernels/gpu/delta_limits.h"

/// Two kernels. The first makes of each row what the rule reads: convolution, SiLU, unit lengths. The
/// second is the rule, bound by reading and writing each state once where a sequence has one row.
///
/// A thread block of the second has 32 columns of a head's state, in registers from the first row of
/// the sequence to the last: warp g has rows [32 g, 32 g + 32) of the matrix, lane c column c. Columns
/// do not meet; what the warps see of a key or a query is added up through shared memory.

namespace slime::kernels::cuda {
namespace {

constexpr int kWarps = 8;  // heads of a thread block of the first kernel

template <typename T, typename W>
__global__ void __launch_bounds__(32 * kWarps) delta_tokens_kernel(DeltaRows call) {
  constexpr int kPerLane = kMostDeltaValues / 32;
  launch_dependents();
  grid_dependency_wait();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (head >= 2 * call.key_heads + call.value_heads) return;
  const int64_t row = blockIdx.x;
  const int sequence = call.row_sequence_T[row], place = call.state_S[sequence];
  if (place < 0) return;
  const bool is_value = head >= 2 * call.key_heads;
  const int size = is_value ? call.value_dim : call.key_dim;
  const int begin =
      is_value ? 2 * call.key_heads * call.key_dim + (head - 2 * call.key_heads) * call.value_dim
               : head * call.key_dim;
  const int channels = 2 * call.key_heads * call.key_dim + call.value_heads * call.value_dim;
  const int before = call.taps - 1;
  const int64_t first = call.query_starts[sequence];
  const float* tokens = call.states + place * call.state_stride;
  const T* mixed = static_cast<const T*>(call.mixed_TE);
  const W* taps = static_cast<const W*>(call.tap_EJ);
  float x[kPerLane] = {};
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kPerLane; ++p) {
    const int i = lane + 32 * p;
    if (i >= size) continue;
    const int channel = begin + i;
    float sum = 0;
    for (int j = 0; j < call.taps; ++j) {
      const int64_t source = row - before + j;
      // Past the L1 cache: the tokens of the state are written in place.
      const float token =
          source >= first ? to_float(mixed[source * call.row_stride + channel])
                          : load_past_l1(tokens + (before + source - first) * channels + channel);
      sum += to_float(taps[static_cast<int64_t>(channel) * call.taps + j]) * token;
    }
    x[p] = sum / (1.0F + expf(-sum));
    squares += x[p] * x[p];
  }
  float scale = 1;
  if (!is_value) {
    scale = rsqrtf(warp_sum(squares) + call.unit_eps);
    if (head < call.key_heads) scale *= rsqrtf(static_cast<float>(call.key_dim));
  }
  float* to = call.unit_TE + row * channels + begin;
#pragma unroll
  for (int p = 0; p < kPerLane; ++p) {
    const int i = lane + 32 * p;
    if (i < size) to[i] = x[p] * scale;
  }
}

constexpr int kColumns = 32;
constexpr int kGroups = 4;
constexpr int kGroupRows = kMostDeltaKeys / kGroups;

template <typename T>
__global__ void __launch_bounds__(kColumns* kGroups) delta_rule_kernel(DeltaRows call) {
  __shared__ float query[2][kMostDeltaKeys], key[2][kMostDeltaKeys];
  __shared__ float seen[kGroups][kColumns], read[kGroups][kColumns];
  launch_dependents();
  grid_dependency_wait();
  const int thread = static_cast<int>(threadIdx.x), column = thread % kColumns,
            group = thread / kColumns;
  const int sequence = blockIdx.x, head = blockIdx.y, value = blockIdx.z * kColumns + column;
  const int keys = call.key_dim, values = call.value_dim;
  const int key_head = head / (call.value_heads / call.key_heads);
  const int channels = 2 * call.key_heads * keys + call.value_heads * values;
  const int64_t first = call.query_starts[sequence], end = call.query_starts[sequence + 1];
  const int place = call.state_S[sequence];
  const bool has_column = value < values;
  const auto out = [&](int64_t row) -> float& {
    return call.out_TC[(row * call.value_heads + head) * values + value];
  };
  if (place < 0) {
    if (has_column && group == 0)
      for (int64_t row = first; row < end; ++row) out(row) = 0;
    return;
  }
  const int before = call.taps - 1;
  float* tokens = call.states + place * call.state_stride;
  float* matrix = tokens + static_cast<int64_t>(before) * channels +
                  static_cast<int64_t>(head) * keys * values + value;
  float state[kGroupRows];
#pragma unroll
  for (int r = 0; r < kGroupRows; ++r) {
    const int d = group * kGroupRows + r;
    state[r] =
        d < keys && has_column ? load_past_l1(matrix + static_cast<int64_t>(d) * values) : 0.0F;
  }
  // What the next row brings; each thread has a number of its query and of its key.
  float next_query = 0, next_key = 0, next_value = 0, next_decay = 0, next_rate = 0;
  const auto fetch = [&](int64_t row) {
    const float* unit = call.unit_TE + row * channels;
    if (thread < keys) {
      next_query = load_past_l1(unit + key_head * keys + thread);
      next_key = load_past_l1(unit + (call.key_heads + key_head) * keys + thread);
    }
    if (has_column)
      next_value = load_past_l1(unit + 2 * call.key_heads * keys + head * values + value);
    next_decay = call.decay_TN[row * call.value_heads + head];
    next_rate = call.rate_TN[row * call.value_heads + head];
  };
  const auto total = [&](const float(&parts)[kGroups][kColumns]) {
    float sum = parts[0][column];
#pragma unroll
    for (int g = 1; g < kGroups; ++g) sum += parts[g][column];
    return sum;
  };
  if (first == end) return;
  fetch(first);
  for (int64_t row = first; row < end; ++row) {
    // Two buffers: a warp may still read those of the row before.
    const auto turn = static_cast<int>(row & 1);
    query[turn][thread] = next_query;
    key[turn][thread] = next_key;
    const float v = next_value, decay = expf(next_decay), rate = next_rate;
    __syncthreads();
    if (group == 0 && has_column && row > first) out(row - 1) = total(read);
    if (row + 1 < end) fetch(row + 1);
    float sum = 0;
#pragma unroll
    for (int r = 0; r < kGroupRows; ++r) {
      state[r] *= decay;
      sum += key[turn][group * kGroupRows + r] * state[r];
    }
    seen[group][column] = sum;
    __syncthreads();
    const float written = rate * (v - total(seen));
    float answer = 0;
#pragma unroll
    for (int r = 0; r < kGroupRows; ++r) {
      state[r] += key[turn][group * kGroupRows + r] * written;
      answer += query[turn][group * kGroupRows + r] * state[r];
    }
    read[group][column] = answer;
  }
  __syncthreads();
  if (group == 0 && has_column) out(end - 1) = total(read);
#pragma unroll
  for (int r = 0; r < kGroupRows; ++r) {
    const int d = group * kGroupRows + r;
    if (d < keys && has_column) matrix[static_cast<int64_t>(d) * values] = state[r];
  }
  // The last tokens before the convolution, which may be older than the run is long: the sequence's
  // thread blocks divide the channels.
  const int blocks = gridDim.y * gridDim.z;
  const int64_t count = end - first;
  const T* mixed = static_cast<const T*>(call.mixed_TE);
  for (int channel = (head * static_cast<int>(gridDim.z) + static_cast<int>(blockIdx.z)) *
                         static_cast<int>(blockDim.x) +
                     thread;
       channel < channels; channel += blocks * static_cast<int>(blockDim.x)) {
    for (int j = 0; j < before; ++j) {
      const int64_t from = count - before + j;  // counted from the first new token
      tokens[static_cast<int64_t>(j) * channels + channel] =
          from >= 0 ? to_float(mixed[(first + from) * call.row_stride + channel])
                    : load_past_l1(tokens + (before + from) * channels + channel);
    }
  }
}

}  // namespace

void paged_delta(const DeltaRows& call, Stream stream) {
  if (call.key_dim > kMostDeltaKeys || call.value_dim > kMostDeltaValues ||
      call.taps > kMostDeltaTaps || call.value_heads % call.key_heads != 0)
    throw std::runtime_error(
        "gated delta nets have keys of up to 128, values of up to 256 and 8 taps");
  const int heads = 2 * call.key_heads + call.value_heads;
  const dim3 tokens(call.rows, divide_up(heads, kWarps));
  const dim3 rule(call.sequences, call.value_heads, divide_up(call.value_dim, kColumns));
  with_type(call.number, [&](auto zero) {
    using T = decltype(zero);
    with_type(call.of_taps, [&](auto tap_zero) {
      launch(delta_tokens_kernel<T, decltype(tap_zero)>, tokens, dim3(32 * kWarps), 0, stream,
             call);
    });
    launch(delta_rule_kernel<T>, rule, dim3(kColumns * kGroups), 0, stream, call);
  });
}

}  // namespace slime::kernels::cuda
