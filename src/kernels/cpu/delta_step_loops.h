// The loops of delta_step.h. Included, inside a namespace without name, by one source per instruction
// set.

/// y = silu(convolution) of all channels; the tokens before move up by one.
inline void convolve(const float* tap_JE, const float* x_E, float* tokens_JE, float* y_E,
                     int64_t taps, int64_t channels) {
  const float* newest_E = tap_JE + (taps - 1) * channels;
#pragma omp simd
  for (int64_t e = 0; e < channels; ++e) y_E[e] = newest_E[e] * x_E[e];
  for (int64_t j = 0; j + 1 < taps; ++j) {
    const float *tap_E = tap_JE + j * channels, *token_E = tokens_JE + j * channels;
#pragma omp simd
    for (int64_t e = 0; e < channels; ++e) y_E[e] += tap_E[e] * token_E[e];
  }
#pragma omp simd
  for (int64_t e = 0; e < channels; ++e) y_E[e] = y_E[e] / (1.0F + fast_exp(-y_E[e]));
  if (taps < 2) return;
  std::memmove(tokens_JE, tokens_JE + channels,
               static_cast<size_t>((taps - 2) * channels) * sizeof(float));
  std::memcpy(tokens_JE + (taps - 2) * channels, x_E,
              static_cast<size_t>(channels) * sizeof(float));
}

inline void scale_to_length(float* x, int64_t size, float length) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < size; ++i) sum += x[i] * x[i];
  const float factor = length / std::sqrt(sum + static_cast<float>(kDeltaEps));
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) x[i] *= factor;
}

/// One head: its state decays, takes the token in and is read.
inline void advance(float* state_DV, const float* q_D, const float* k_D, const float* v_V,
                    float decay, float rate, float* written_V, float* out_V, int64_t key_dim,
                    int64_t value_dim) {
  for (int64_t v = 0; v < value_dim; ++v) written_V[v] = out_V[v] = 0;
  for (int64_t d = 0; d < key_dim; ++d) {
    const float* row = state_DV + d * value_dim;
    const float k = k_D[d];
#pragma omp simd
    for (int64_t v = 0; v < value_dim; ++v) written_V[v] += k * row[v];
  }
#pragma omp simd
  for (int64_t v = 0; v < value_dim; ++v) written_V[v] = rate * (v_V[v] - decay * written_V[v]);
  for (int64_t d = 0; d < key_dim; ++d) {
    float* row = state_DV + d * value_dim;
    const float k = k_D[d], q = q_D[d];
#pragma omp simd
    for (int64_t v = 0; v < value_dim; ++v) {
      row[v] = decay * row[v] + k * written_V[v];
      out_V[v] += q * row[v];
    }
  }
}
