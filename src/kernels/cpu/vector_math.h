#pragma once

/// First calls of the vector math that LibTorch's element-wise functions end in.

namespace slime::kernels::cpu {

/// Calls each of those functions once, from this thread alone. MKL finds the code of a function at its first call, and
/// when that is made by several threads at once one of them may compute its part with a few thousand units in the last
/// place of error, once and in silence (github.com/pytorch/pytorch/issues/188792; oneMKL before 2025.0). A rotary table
/// is made by one such call, and is used for the whole run. So each program begins with this.
void call_vector_math_once();

}  // namespace slime::kernels::cpu
