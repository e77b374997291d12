#pragma once

/// kernels/adamw.h on the CPU.

#include "kernels/adamw.h"

namespace slime::kernels::cpu {

void adamw_(const Tensor& weights_N, const Tensor& master_N, const Tensor& first_moment_N,
            const Tensor& second_moment_N, const Tensor& grad_N, std::span<const AdamRange> ranges,
            const AdamStep& step);

double sum_of_squares(const Tensor& x_N);

}  // namespace slime::kernels::cpu
