#include "kernels/cpu/attention_rows.h"

#include <cmath>

#include "kernels/cpu/numbers.h"

namespace slime::kernels::cpu {
namespace {

#include "kernels/cpu/attention_rows_loops.h"

}  // namespace

const AttentionRows& attention_rows() {
  static const AttentionRows rows{softmax, backward};
  return rows;
}

}  // namespace slime::kernels::cpu
