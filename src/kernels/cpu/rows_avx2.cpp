#include "kernels/cpu/rows_avx2.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/numbers.h"

#include "kernels/cpu/target_avx2_begin.h"

namespace slime::kernels::cpu::avx2 {
namespace {

template <typename T>
float mean_square(const T* x, int64_t size) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < size; ++i) sum += load(x + i) * load(x + i);
  return sum / static_cast<float>(size);
}

inline float sigmoid(float x) { return 1.0F / (1.0F + fast_exp(-x)); }

}  // namespace

template <typename T, typename W>
void rms_norm(T* x, const T* update, const W* weight, T* out, int64_t rows, int64_t size,
              float eps) {
  for (int64_t row = 0; row < rows; ++row, x += size, out += size) {
    if (update != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) store(x + i, load(x + i) + load(update + i));
      update += size;
    }
    const float scale = 1.0F / std::sqrt(mean_square(x, size) + eps);
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) store(out + i, load(x + i) * scale * load(weight + i));
  }
}

template <typename T, typename W>
void rms_norm_backward(const T* dy, const T* x, const W* weight, T* dx, float* weight_grad,
                       int64_t rows, int64_t size, float eps) {
  for (int64_t row = 0; row < rows; ++row, dy += size, x += size, dx += size) {
    float square = 0, dot = 0;
#pragma omp simd reduction(+ : square, dot)
    for (int64_t i = 0; i < size; ++i) {
      square += load(x + i) * load(x + i);
      dot += load(dy + i) * load(weight + i) * load(x + i);
    }
    const auto count = static_cast<float>(size);
    const float scale = 1.0F / std::sqrt(square / count + eps);
    const float pull = scale * scale * dot / count;
    if (weight_grad != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) weight_grad[i] += load(dy + i) * load(x + i) * scale;
    }
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) {
      store(dx + i, scale * (load(dy + i) * load(weight + i) - load(x + i) * pull));
    }
  }
}

template <typename T>
void swiglu(const T* gate_up, T* out, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, out += width) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const float gate = load(gate_up + i);
      store(out + i, gate * sigmoid(gate) * load(gate_up + width + i));
    }
  }
}

template <typename T>
void swiglu_backward(const T* dy, const T* gate_up, T* dgate_up, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows;
       ++row, dy += width, gate_up += 2 * width, dgate_up += 2 * width) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const float gate = load(gate_up + i), up = load(gate_up + width + i), d = load(dy + i);
      const float s = sigmoid(gate);
      store(dgate_up + i, d * up * s * (1.0F + gate * (1.0F - s)));
      store(dgate_up + width + i, d * gate * s);
    }
  }
}

template <typename T, typename W>
void norm_rotate_head(T* head, const W* weight, const float* cos, const float* sin, int64_t size,
                      float eps) {
  const int64_t half = size / 2;
  if (weight == nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      const float a = load(head + i), b = load(head + half + i);
      store(head + i, a * cos[i] - b * sin[i]);
      store(head + half + i, b * cos[i] + a * sin[i]);
    }
    return;
  }
  const float scale = 1.0F / std::sqrt(mean_square(head, size) + eps);
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = load(head + i) * scale * load(weight + i);
    const float b = load(head + half + i) * scale * load(weight + half + i);
    store(head + i, a * cos[i] - b * sin[i]);
    store(head + half + i, b * cos[i] + a * sin[i]);
  }
}

template <typename T, typename W>
void norm_rotate_head_backward(T* dhead, const T* x, const W* weight, float* weight_grad,
                               const float* cos, const float* sin, int64_t size, float eps) {
  const int64_t half = size / 2;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = load(dhead + i), b = load(dhead + half + i);
    store(dhead + i, a * cos[i] + b * sin[i]);
    store(dhead + half + i, b * cos[i] - a * sin[i]);
  }
  if (weight != nullptr) rms_norm_backward(dhead, x, weight, dhead, weight_grad, 1, size, eps);
}

template <typename T>
void sum(const T* a, const T* b, T* out, int64_t size) {
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) store(out + i, load(a + i) + load(b + i));
}

void narrow(const float* from, at::BFloat16* to, int64_t size) {
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) store(to + i, from[i]);
}

void soft_cap_row(float* x, int64_t size, float cap) { soft_cap(x, size, 1, cap); }

template <typename T>
void softmax_row_backward(const float* logits, int64_t size, int64_t target,
                          float inverse_temperature, float inverse_cap, float logsumexp,
                          float entropy, float dlogprob, float dentropy, T* out) {
  const auto gradient = [&](float logit) __attribute__((always_inline)) {
    const float log_p = logit * inverse_temperature - logsumexp;
    return -fast_exp(log_p) * (dlogprob + dentropy * (log_p + entropy)) * inverse_temperature;
  };
  const auto slope = [&](float logit) __attribute__((always_inline)) {
    const float share = logit * inverse_cap;
    return 1 - share * share;
  };
  // `out` may be the logits.
  float at_target = target < 0 ? 0 : gradient(logits[target]) + dlogprob * inverse_temperature;
  if (inverse_cap > 0) {
    if (target >= 0) at_target *= slope(logits[target]);
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) store(out + i, gradient(logits[i]) * slope(logits[i]));
  } else {
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) store(out + i, gradient(logits[i]));
  }
  if (target >= 0) store(out + target, at_target);
}

#define SLIME_ROWS_OF(T)                                                                     \
  template void sum<T>(const T*, const T*, T*, int64_t);                                     \
  template void swiglu<T>(const T*, T*, int64_t, int64_t);                                   \
  template void swiglu_backward<T>(const T*, const T*, T*, int64_t, int64_t);                \
  template void softmax_row_backward<T>(const float*, int64_t, int64_t, float, float, float, \
                                        float, float, float, T*);
#define SLIME_WEIGHTED_ROWS_OF(T, W)                                                              \
  template void rms_norm<T, W>(T*, const T*, const W*, T*, int64_t, int64_t, float);              \
  template void rms_norm_backward<T, W>(const T*, const T*, const W*, T*, float*, int64_t,        \
                                        int64_t, float);                                          \
  template void norm_rotate_head<T, W>(T*, const W*, const float*, const float*, int64_t, float); \
  template void norm_rotate_head_backward<T, W>(T*, const T*, const W*, float*, const float*,     \
                                                const float*, int64_t, float);
SLIME_ROWS_OF(float)
SLIME_ROWS_OF(at::BFloat16)
SLIME_WEIGHTED_ROWS_OF(float, float)
SLIME_WEIGHTED_ROWS_OF(float, at::BFloat16)
SLIME_WEIGHTED_ROWS_OF(float, at::Half)
SLIME_WEIGHTED_ROWS_OF(at::BFloat16, at::BFloat16)
SLIME_WEIGHTED_ROWS_OF(at::BFloat16, float)
#undef SLIME_ROWS_OF
#undef SLIME_WEIGHTED_ROWS_OF

}  // namespace slime::kernels::cpu::avx2

#include "kernels/cpu/target_end.h"
