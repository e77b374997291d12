#pragma once

/// Shape of the factors of rows of activations, [C, P]: C blocks of 128 inputs, P rows and padding.

#include <cstdint>

#include "core/divide_up.h"

namespace slime::kernels::cuda::fp8 {

/// Rows of factors are whole copies: of 16 bytes, and of tiles where there are many rows.
constexpr int64_t factor_pitch(int64_t rows) {
  return rows <= 64 ? round_up(rows, int64_t{4}) : round_up(rows, int64_t{128});
}
constexpr int64_t factor_rows(int64_t inputs) { return divide_up(inputs, int64_t{128}); }

}  // namespace slime::kernels::cuda::fp8
