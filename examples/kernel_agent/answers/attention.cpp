#include <vector>

// A row of scores at a time, with the values added up as they are weighed.
void forward(const float* q, int64_t q_0, int64_t q_1, int64_t q_2, const float* k, int64_t k_0, int64_t k_1, int64_t k_2,
             const float* v, int64_t v_0, int64_t v_1, int64_t v_2, float* out) {
  const int64_t length = q_1, width = q_2;
  const float scale = 1 / std::sqrt(static_cast<float>(width));
  std::vector<float> score(length), turned(width * length);
  for (int64_t head = 0; head < q_0; ++head) {
    const int64_t base = head * length * width;
    for (int64_t j = 0; j < length; ++j)
      for (int64_t i = 0; i < width; ++i) turned[i * length + j] = k[base + j * width + i] * scale;
    for (int64_t row = 0; row < length; ++row) {
      std::fill(score.begin(), score.end(), 0.0f);
      const float* const query = q + base + row * width;
      for (int64_t i = 0; i < width; ++i) {
#pragma omp simd
        for (int64_t j = 0; j < length; ++j) score[j] += query[i] * turned[i * length + j];
      }
      float largest = score[0], sum = 0;
#pragma omp simd reduction(max : largest)
      for (int64_t j = 0; j < length; ++j) largest = std::max(largest, score[j]);
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < length; ++j) sum += score[j] = std::exp(score[j] - largest);
      float* const mixed = out + base + row * width;
      std::fill(mixed, mixed + width, 0.0f);
      for (int64_t j = 0; j < length; ++j) {
        const float share = score[j] / sum;
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) mixed[i] += share * v[base + j * width + i];
      }
    }
  }
}
