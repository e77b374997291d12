// Functions from here to target_end.h are compiled for AVX-512 with its products of bfloat16. Call them
// only after has_tiles(). Include after all other headers.
#if defined(__clang__)
#pragma clang attribute push(                                                               \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16"))), \
    apply_to = function)
#elif defined(__GNUC__)
#pragma GCC push_options
// GCC's own intrinsics start from a register they say is undefined, and it then warns of it (GCC
// bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC target( \
    "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,prefer-vector-width=512")
#endif
