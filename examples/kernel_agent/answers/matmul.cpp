// Rows of b are added to a row of the product: all is read and written along rows. Four at a time, so that sums stay in registers longer.
void forward(const float* a, int64_t a_0, int64_t a_1, const float* b, int64_t b_0, int64_t b_1, float* out) {
  for (int64_t row = 0; row < a_0; ++row) {
    float* const sums = out + row * b_1;
    const float* const left = a + row * a_1;
    for (int64_t j = 0; j < b_1; ++j) sums[j] = 0;
    int64_t k = 0;
    for (; k + 4 <= a_1; k += 4) {
      const float* const r = b + k * b_1;
      const float w = left[k], x = left[k + 1], y = left[k + 2], z = left[k + 3];
#pragma omp simd
      for (int64_t j = 0; j < b_1; ++j) sums[j] += w * r[j] + x * r[b_1 + j] + y * r[2 * b_1 + j] + z * r[3 * b_1 + j];
    }
    for (; k < a_1; ++k) {
#pragma omp simd
      for (int64_t j = 0; j < b_1; ++j) sums[j] += left[k] * b[k * b_1 + j];
    }
  }
}
