#include "kernels/cpu/gemm.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/divide_up.h"
#include "core/error.h"
#include "kernels/cpu/gemm_avx2.h"
#include "kernels/cpu/thread_pool.h"

namespace slime::kernels::cpu {
namespace {

/// Rows of A that one thread takes at a time: 240 x 256 floats stay in the second-level cache while
/// panels of B pass.
constexpr int64_t kMaxRows = 240;
constexpr int64_t kMinColumns = 64;
constexpr int64_t kChunksPerThread = 4;  // so that a slow core leaves work to the other
constexpr int64_t kMinFlops = 1 << 17;   // of a chunk; about two microseconds

}  // namespace

void gemm(const GemmSize& size, const LeftFactor& a, const RightFactor& b, float* c, int64_t ldc,
          bool accumulate) {
  if (size.m == 0 || size.n == 0) return;
  const int64_t row_blocks = divide_up(size.m, kMaxRows);
  const int64_t rows = round_up(divide_up(size.m, row_blocks), avx2::kPanelRows);
  const int64_t row_chunks = divide_up(size.m, rows);
  // Columns are split only as far as needed to give every thread work.
  const int64_t wanted = std::min<int64_t>(kChunksPerThread * num_threads(),
                                           2 * size.m * size.n * size.k / kMinFlops + 1);
  const int64_t column_cuts = std::max<int64_t>(1, divide_up(wanted, row_chunks));
  const int64_t columns =
      std::max(kMinColumns, round_up(divide_up(size.n, column_cuts), avx2::kPanelColumns));
  const int64_t column_chunks = divide_up(size.n, columns);
  const auto* b_bytes = static_cast<const char*>(b.data);
  const auto width = static_cast<int64_t>(c10::elementSize(b.dtype));

  parallel_chunks(row_chunks * column_chunks, [&](int64_t chunk) {
    const int64_t i = chunk / column_chunks * rows, j = chunk % column_chunks * columns;
    const LeftFactor a_part{a.data + i * a.row_stride, a.row_stride, a.k_stride};
    const RightFactor b_part{b_bytes + j * b.column_stride * width, b.dtype, b.k_stride,
                             b.column_stride};
    avx2::gemm_block({std::min(rows, size.m - i), std::min(columns, size.n - j), size.k}, a_part,
                     b_part, c + i * ldc + j, ldc, accumulate);
  });
}

}  // namespace slime::kernels::cpu
