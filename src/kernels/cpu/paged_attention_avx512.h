#pragma once

/// The two products of paged attention over one block of keys, sixteen floats at a time: what
/// paged_attention_avx2.cpp calls for them where the processor has AVX-512. The same additions in
/// the same order as its own, hence the same bits.

#include <cstdint>

namespace slime::kernels {

/// scores[m * kBlockTokens + 16 page + slot] = query[m * stride + .] . key_pages[page][. * 16 +
/// slot], for `rows` queries. T is float or uint16_t (bfloat16).
template <typename T>
void score_pages_avx512(int64_t rows, const float* query, int64_t stride, const T* const* key_pages,
                        int64_t num_pages, int64_t head_dim, float* scores);

/// out[m * stride + .] += sum over slots of weights[m * kBlockTokens + slot] * value of the slot.
template <typename T>
void add_value_pages_avx512(int64_t rows, const float* weights, const T* const* value_pages,
                            int64_t num_slots, int64_t stride, float* out);

}  // namespace slime::kernels
