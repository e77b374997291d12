#include "kernels/cpu/processor.h"

#include <ATen/cpu/Utils.h>

namespace slime::kernels::cpu {

#if defined(__x86_64__)
bool has_avx2() {
  static const bool answer = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return answer;
}

bool has_avx512() {
  static const bool answer =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return answer;
}

bool has_bfloat16_products() {
  // init_amx asks the kernel for the tile registers and is false where there are none.
  static const bool answer = __builtin_cpu_supports("avx512bf16") || at::cpu::init_amx();
  return answer;
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
bool has_bfloat16_products() { return false; }
#endif

}  // namespace slime::kernels::cpu
