// Functions from here to target_end.h are compiled for AVX2, FMA and F16C, whatever the program is
// compiled for. Call them only after has_avx2(). Include after all other headers, so that no
// library function is caught in between.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
