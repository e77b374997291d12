#pragma once

/// Factors of a product that cancel: each sum is zero but for the roundings on its way, so its bits
/// tell orders of adding apart, also after rounding to 16 bits. Two kernels that agree on some
/// thousands of them add in one order.

#include <cstdint>

#include "kernels/cuda/products/skinny_linear.h"

namespace slime::kernels::cuda {

/// Numbers of many magnitudes, each a function of `seed` and its place alone. The second half of a
/// row (inputs is even) is the first one read backwards, with the other sign where `is_negated`.
void write_mirrored_rows(Number number, void* to_RI, int64_t rows, int64_t inputs, uint32_t seed,
                         bool is_negated, Stream stream);

class ProductProbe final {
 public:
  /// For products of this shape, precision and bias, on the current device.
  ProductProbe(const LinearCall& like, Stream stream);
  ProductProbe(const ProductProbe&) = delete;
  ProductProbe& operator=(const ProductProbe&) = delete;
  ~ProductProbe();

  /// Calls `multiply` with the probe's factors and remembers the result.
  template <typename Multiply>
  void take(const Multiply& multiply) {
    multiply(call_into(taken_));
  }
  /// Whether `multiply` gives the bits of the result that was taken. Waits for the GPU.
  template <typename Multiply>
  bool agrees(const Multiply& multiply) const {
    multiply(call_into(tried_));
    return is_equal();
  }

 private:
  LinearCall call_into(void* result) const;
  bool is_equal() const;

  LinearCall call_;
  int64_t result_bytes_ = 0;
  void* memory_ = nullptr;  // of all below; LibTorch's allocator would keep it
  void *taken_ = nullptr, *tried_ = nullptr;
};

}  // namespace slime::kernels::cuda
