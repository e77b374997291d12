#include <cuda_fp8.h>

#include "kernels/cuda/attention/attention.h"

namespace slime::kernels::cuda {

/// Instantiated in attend_tiles_*.cu, one each.
template <typename T, typename Kv, int kHeadDim>
void attend_tiles_of(const AttendCall& call, const UnitArrays& units, cudaStream_t stream);

namespace {

template <typename T, typename Kv>
void attend_with_pages_of(const AttendCall& call, const UnitArrays& units, cudaStream_t stream) {
  call.head_dim == 64 ? attend_tiles_of<T, Kv, 64>(call, units, stream)
                      : attend_tiles_of<T, Kv, 128>(call, units, stream);
}

template <typename T>
void attend_with_rows_of(const AttendCall& call, const UnitArrays& units, cudaStream_t stream) {
  if (call.head_dim == 256) return attend_tiles_of<T, T, 256>(call, units, stream);
  call.paged.is_fp8 ? attend_with_pages_of<T, __nv_fp8_e4m3>(call, units, stream)
                    : attend_with_pages_of<T, T>(call, units, stream);
}

}  // namespace

bool has_tiles(Number number, int head_dim, bool is_fp8) {
  return number != Number::kFloat32 &&
         (head_dim == 64 || head_dim == 128 || (head_dim == 256 && !is_fp8));
}

void attend_tiles(const AttendCall& call, const UnitArrays& units, cudaStream_t stream) {
  if (!has_tiles(call.number, call.head_dim, call.paged.is_fp8))
    throw std::runtime_error(
        "tiled attention has head sizes 64, 128 and, without fp8, 256 in 16-bit precisions");
  call.number == Number::kBFloat16 ? attend_with_rows_of<__nv_bfloat16>(call, units, stream)
                                   : attend_with_rows_of<__half>(call, units, stream);
}

}  // namespace slime::kernels::cuda
