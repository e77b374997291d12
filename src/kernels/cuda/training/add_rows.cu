#include "kernels/cuda/training/rows_backward.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kAtOnce = 8;  // loads of a thread in flight

/// One thread block per place in sorted order and slice of columns. The one at the first place of a
/// run of equal rows adds the whole run, from its first row to its last; the others end at once.
template <typename T, typename Sum>
__global__ void __launch_bounds__(kThreads) add_rows_kernel(const AddRowsCall call, int packs) {
  launch_dependents();
  grid_dependency_wait();
  const int64_t first = blockIdx.x, row = call.sorted_T[first];
  if (first > 0 && call.sorted_T[first - 1] == row) return;
  const int pack = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  if (pack >= packs) return;
  using Numbers = Pack<T, kAddedColumns>;
  using Sums = Pack<Sum, kAddedColumns>;
  const auto* x = static_cast<const Numbers*>(call.x_TH) + pack;
  float sum[kAddedColumns] = {};
  for (int64_t begin = first; begin < call.rows && call.sorted_T[begin] == row; begin += kAtOnce) {
    Numbers loaded[kAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t place = begin + i;
      if (place < call.rows && call.sorted_T[place] == row)
        loaded[i] = x[call.from_T[place] * packs];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
      for (int j = 0; j < kAddedColumns; ++j) sum[j] += to_float(loaded[i].x[j]);
    }
  }
  Sums* to = static_cast<Sums*>(call.sum_VH) + row * packs + pack;
  Sums out = *to;
#pragma unroll
  for (int j = 0; j < kAddedColumns; ++j) out.x[j] = from_float<Sum>(to_float(out.x[j]) + sum[j]);
  *to = out;
}

}  // namespace

void add_rows(const AddRowsCall& call, Stream stream) {
  const auto packs = static_cast<int>(call.columns / kAddedColumns);
  const dim3 grid(static_cast<unsigned>(call.rows),
                  static_cast<unsigned>((packs + kThreads - 1) / kThreads));
  with_type(call.number, [&](auto number) {
    using T = decltype(number);
    launch(call.has_float_sum ? add_rows_kernel<T, float> : add_rows_kernel<T, T>, grid,
           dim3(kThreads), 0, stream, call, packs);
  });
}

}  // namespace slime::kernels::cuda
