#pragma once

/// Transposition of a tile of 32-bit numbers in AVX-512 registers: columns of sixteen rows, four at a time.

// Included between target_avx512_begin.h or target_amx_begin.h and target_end.h, inside a namespace.

/// Columns 4 group .. 4 group + 3 of sixteen rows of sixteen 32-bit numbers, `row_bytes` apart.
/// Rows four apart are gathered into one register by loads; two rounds of shuffles inside lanes do
/// the rest.
inline void turn_columns(const void* from, int64_t row_bytes, int group, __m512i (&columns)[4]) {
  const auto* rows = static_cast<const char*>(from) + 16 * group;
  __m512i v[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto piece = [&](int quarter) __attribute__((always_inline)) {
      return _mm_loadu_si128(
          reinterpret_cast<const __m128i*>(rows + (i + 4 * quarter) * row_bytes));
    };
    __m512i x = _mm512_castsi128_si512(piece(0));
    x = _mm512_inserti32x4(x, piece(1), 1);
    x = _mm512_inserti32x4(x, piece(2), 2);
    v[i] = _mm512_inserti32x4(x, piece(3), 3);
  }
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  columns[0] = _mm512_unpacklo_epi64(a, c);
  columns[1] = _mm512_unpackhi_epi64(a, c);
  columns[2] = _mm512_unpacklo_epi64(b, d);
  columns[3] = _mm512_unpackhi_epi64(b, d);
}
