// The loops of attention_rows.h. Included, inside a namespace without name, by one source per
// instruction set.

inline float softmax(float* scores, const Visible& seen, int64_t padded, const ScoreForm& form,
                     SoftmaxState& state, at::BFloat16* weights) {
  float scale = form.scale;
  if (form.cap > 0) {
    soft_cap(scores + seen.low, seen.high - seen.low, form.scale, form.cap);
    scale = 1;
  }
  const float before = state.largest;
  const float here = largest_of(scores + seen.low, seen.high - seen.low) * scale;
  const float largest = here > before ? here : before;
  float sum = 0;
  for (int64_t j = 0; j < seen.low; ++j) weights[j].x = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = seen.low; j < seen.high; ++j) {
    const float weight = fast_exp(scores[j] * scale - largest);
    sum += weight;
    store(weights + j, weight);
  }
  for (int64_t j = seen.high; j < padded; ++j) weights[j].x = 0;
  const float factor = largest == before ? 1.0F : fast_exp(before - largest);
  state = {largest, state.total * factor + sum};
  return factor;
}

inline void backward(float* scores, const float* dp, const Visible& seen, int64_t padded,
                     const ScoreForm& form, float logsumexp, float delta, at::BFloat16* p,
                     at::BFloat16* ds) {
  const float scale = form.scale;
  for (int64_t j = 0; j < seen.low; ++j) p[j].x = ds[j].x = 0;
  if (form.cap > 0) {
    soft_cap(scores + seen.low, seen.high - seen.low, scale, form.cap);
    const float inverse_cap = 1 / form.cap;
#pragma omp simd
    for (int64_t j = seen.low; j < seen.high; ++j) {
      const float weight = fast_exp(scores[j] - logsumexp), share = scores[j] * inverse_cap;
      store(p + j, weight);
      store(ds + j, scale * weight * (dp[j] - delta) * (1 - share * share));
    }
  } else {
#pragma omp simd
    for (int64_t j = seen.low; j < seen.high; ++j) {
      const float weight = fast_exp(scores[j] * scale - logsumexp);
      store(p + j, weight);
      store(ds + j, scale * weight * (dp[j] - delta));
    }
  }
  for (int64_t j = seen.high; j < padded; ++j) p[j].x = ds[j].x = 0;
}
