#pragma once

/// Row-wise kernels for processors with AVX2: norms, rotary embedding, SwiGLU, gradients of logits.
/// T is float or at::BFloat16 (activations), W also at::Half (weights); sums are float. Each call
/// does the rows it is given; the caller spreads rows over threads.

#include <ATen/ATen.h>

#include <cstdint>

namespace slime::kernels::cpu::avx2 {

/// out = x / sqrt(mean(x^2) + eps) * weight for each of `rows` rows; with `update`, x += update
/// first.
template <typename T, typename W>
void rms_norm(T* x, const T* update, const W* weight, T* out, int64_t rows, int64_t size,
              float eps);

/// dx of the norm; adds the weight's gradient to weight_grad [size] (null: not wanted).
template <typename T, typename W>
void rms_norm_backward(const T* dy, const T* x, const W* weight, T* dx, float* weight_grad,
                       int64_t rows, int64_t size, float eps);

template <typename T>
void swiglu(const T* gate_up, T* out, int64_t rows, int64_t width);
template <typename T>
void swiglu_backward(const T* dy, const T* gate_up, T* dgate_up, int64_t rows, int64_t width);

/// Norms (weight not null) and rotates one head in place. cos, sin: [size / 2] of the token's
/// position.
template <typename T, typename W>
void norm_rotate_head(T* head, const W* weight, const float* cos, const float* sin, int64_t size,
                      float eps);
/// In place: gradient of the rotated head to that of x (the head before norm and rotation, unused
/// without weight).
template <typename T, typename W>
void norm_rotate_head_backward(T* dhead, const T* x, const W* weight, float* weight_grad,
                               const float* cos, const float* sin, int64_t size, float eps);

template <typename T>
void sum(const T* a, const T* b, T* out, int64_t size);

/// To nearest, ties to even.
void narrow(const float* from, at::BFloat16* to, int64_t size);

/// Logits to their gradient; float results may go where the logits are. A target of -1 is none.
/// `inverse_cap`: of a cap that the logits have, 0 without one.
template <typename T>
void softmax_row_backward(const float* logits, int64_t size, int64_t target,
                          float inverse_temperature, float inverse_cap, float logsumexp,
                          float entropy, float dlogprob, float dentropy, T* out);
/// x = cap * tanh(x / cap).
void soft_cap_row(float* x, int64_t size, float cap);

}  // namespace slime::kernels::cpu::avx2
