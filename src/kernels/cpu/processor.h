#pragma once

/// What this machine's processor can do, found out once at run time: the program is compiled for
/// any x86-64.

namespace slime::kernels::cpu {

/// AVX2 and FMA: the own kernels run.
bool has_avx2();
/// AVX-512 F, BW, VL and DQ.
bool has_avx512();
/// AVX-512 BF16 or AMX tiles: products of bfloat16 matrices are faster than of float32.
bool has_bfloat16_products();
/// AMX tiles of bfloat16, with AVX-512 and its conversions to bfloat16; the operating system lets
/// this process use them.
bool has_amx();

}  // namespace slime::kernels::cpu
