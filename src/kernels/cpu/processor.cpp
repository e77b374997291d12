#include "kernels/cpu/processor.h"

#include <ATen/cpu/Utils.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

bool has_tiles() {
  static const bool answer = has_avx2() && has_avx512() && __builtin_cpu_supports("avx512bf16");
  return answer;
}

bool has_amx() {
  static const bool answer = [] {
    constexpr unsigned kBfloat16AndTiles = 1U << 22 | 1U << 24;  // Intel SDM volume 2, CPUID 7, EDX
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
           (edx & kBfloat16AndTiles) == kBfloat16AndTiles && has_tiles() &&
           at::cpu::init_amx();  // asks the kernel for the tile registers
  }();
  return answer;
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
bool has_tiles() { return false; }
bool has_amx() { return false; }
#endif

}  // namespace slime::kernels::cpu
