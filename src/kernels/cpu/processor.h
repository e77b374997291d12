#pragma once

/// Instruction sets of this processor, detected once at run time: the program is compiled for any
/// x86-64.

namespace slime::kernels::cpu {

/// AVX2 and FMA: the own kernels run.
bool has_avx2();
/// AVX-512 F, BW, VL and DQ.
bool has_avx512();
/// AVX-512 with products of pairs of bfloat16: the own products of bfloat16 matrices run.
bool has_tiles();
/// AMX tiles of bfloat16 too; the operating system lets this process use them.
bool has_amx();

}  // namespace slime::kernels::cpu
