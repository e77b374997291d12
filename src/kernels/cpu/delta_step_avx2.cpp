#include <cmath>
#include <cstring>

#include "kernels/cpu/delta_step_passes.h"
#include "kernels/cpu/numbers.h"
#include "kernels/gated_delta.h"

#include "kernels/cpu/target_avx2_begin.h"

namespace slime::kernels {
namespace {

using namespace cpu;  // NOLINT: the loops' arithmetic

#include "kernels/cpu/delta_step_loops.h"

}  // namespace

const DeltaStepPasses& delta_step_passes_avx2() {
  static const DeltaStepPasses passes{convolve, scale_to_length, advance};
  return passes;
}

}  // namespace slime::kernels

#include "kernels/cpu/target_end.h"
