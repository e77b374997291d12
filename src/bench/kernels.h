#pragma once

/// Kernels alone: on the CPU the matrix products of one model beside ATen's, on a GPU each kernel
/// of engine and trainer (bench/gpu_kernels.h).

#include <cstdint>
#include <vector>

namespace slime::bench {

struct ProductOptions {
  double budget_seconds = 0.3;  // of each measurement
  std::vector<int64_t> rows{1, 8, 32, 128, 1024};
};

/// Prints one JSON line per product and number of rows: GFLOP/s and GB/s of weights, ours and
/// at::mm's in float32.
void measure_products(const ProductOptions& options);

}  // namespace slime::bench
