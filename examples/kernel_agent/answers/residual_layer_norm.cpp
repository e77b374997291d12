void forward(const float* x, int64_t x_0, int64_t x_1, const float* residual, int64_t residual_0, int64_t residual_1,
             const float* norm_weight, const float* norm_bias, float* out) {
  for (int64_t row = 0; row < x_0; ++row, x += x_1, residual += x_1, out += x_1) {
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < x_1; ++i) sum += out[i] = x[i] + residual[i];
    const float mean = sum / x_1;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < x_1; ++i) squares += (out[i] - mean) * (out[i] - mean);
    const float scale = 1 / std::sqrt(squares / x_1 + 1e-5f);
#pragma omp simd
    for (int64_t i = 0; i < x_1; ++i) out[i] = (out[i] - mean) * scale * norm_weight[i] + norm_bias[i];
  }
}
