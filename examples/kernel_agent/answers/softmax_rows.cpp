void forward(const float* x, int64_t x_0, int64_t x_1, float* out) {
  for (int64_t row = 0; row < x_0; ++row, x += x_1, out += x_1) {
    float largest = x[0], sum = 0;
    for (int64_t i = 1; i < x_1; ++i) largest = std::max(largest, x[i]);
    for (int64_t i = 0; i < x_1; ++i) sum += out[i] = std::exp(x[i] - largest);
    for (int64_t i = 0; i < x_1; ++i) out[i] /= sum;
  }
}
