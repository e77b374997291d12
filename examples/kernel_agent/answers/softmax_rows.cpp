void forward(const float* x, int64_t x_0, int64_t x_1, float* out) {
  for (int64_t row = 0; row < x_0; ++row, x += x_1, out += x_1) {
    float largest = -std::numeric_limits<float>::infinity(), sum = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < x_1; ++i) largest = std::max(largest, x[i]);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < x_1; ++i) sum += out[i] = std::exp(x[i] - largest);
    const float share = 1 / sum;
#pragma omp simd
    for (int64_t i = 0; i < x_1; ++i) out[i] *= share;
  }
}
