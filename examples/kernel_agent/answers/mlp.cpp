#include <vector>

// x times the transpose of w, plus bias: eight outputs at a time share what is read of x.
static void linear(const float* x, int64_t rows, int64_t inner, const float* w, const float* bias, int64_t cols, float* out) {
  constexpr int64_t kAtOnce = 8;
  for (int64_t row = 0; row < rows; ++row) {
    const float* const left = x + row * inner;
    int64_t j = 0;
    for (; j + kAtOnce <= cols; j += kAtOnce) {
      const float* const right = w + j * inner;
      float s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3, s4, s5, s6, s7)
      for (int64_t k = 0; k < inner; ++k) {
        const float each = left[k];
        s0 += each * right[k];
        s1 += each * right[inner + k];
        s2 += each * right[2 * inner + k];
        s3 += each * right[3 * inner + k];
        s4 += each * right[4 * inner + k];
        s5 += each * right[5 * inner + k];
        s6 += each * right[6 * inner + k];
        s7 += each * right[7 * inner + k];
      }
      const float sums[kAtOnce] = {s0, s1, s2, s3, s4, s5, s6, s7};
      for (int64_t i = 0; i < kAtOnce; ++i) out[row * cols + j + i] = sums[i] + bias[j + i];
    }
    for (; j < cols; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < inner; ++k) sum += left[k] * w[j * inner + k];
      out[row * cols + j] = sum + bias[j];
    }
  }
}

void forward(const float* x, int64_t x_0, int64_t x_1, const float* up_weight, int64_t up_weight_0, int64_t up_weight_1,
             const float* up_bias, const float* down_weight, int64_t down_weight_0, int64_t down_weight_1,
             const float* down_bias, float* out) {
  std::vector<float> hidden(up_weight_0);  // one row at a time: it stays in the first cache
  for (int64_t row = 0; row < x_0; ++row) {
    linear(x + row * x_1, 1, x_1, up_weight, up_bias, up_weight_0, hidden.data());
    for (float& each : hidden) each = std::max(each, 0.0f);
    linear(hidden.data(), 1, up_weight_0, down_weight, down_bias, down_weight_0, out + row * down_weight_0);
  }
}
