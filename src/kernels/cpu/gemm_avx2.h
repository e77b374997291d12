#pragma once

/// The inner loops of gemm.h. Call only after has_avx2().

#include "kernels/cpu/gemm.h"

namespace slime::kernels::cpu::avx2 {

constexpr int64_t kPanelColumns = 16;
constexpr int64_t kPanelRows = 6;
constexpr int64_t kBlockK = 256;  // a panel of B is 16 KiB

/// Rows [0, size.m) of C at the factors' origin: one thread's share, at most a few hundred rows.
void gemm_block(const GemmSize& size, const LeftFactor& a, const RightFactor& b, float* c,
                int64_t ldc, bool accumulate);

}  // namespace slime::kernels::cpu::avx2
