#include "kernels/cpu/attention_rows.h"

#include <cmath>

#include "kernels/cpu/numbers.h"

#include "kernels/cpu/target_avx512_begin.h"

namespace slime::kernels::cpu {
namespace {

#include "kernels/cpu/attention_rows_loops.h"

}  // namespace

const AttentionRows& attention_rows_avx512() {
  static const AttentionRows rows{softmax, backward};
  return rows;
}

}  // namespace slime::kernels::cpu

#include "kernels/cpu/target_end.h"
