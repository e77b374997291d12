#include "kernels/cuda/attention.h"

namespace slime::kernels::cuda {

// Instantiated in attend_tiles_*.cu.
template <typename T, int kHeadDim>
void attend_tiles_of(const AttendCall& call, const UnitArrays& units, cudaStream_t stream);
extern template void attend_tiles_of<__nv_bfloat16, 64>(const AttendCall&, const UnitArrays&,
                                                        cudaStream_t);
extern template void attend_tiles_of<__nv_bfloat16, 128>(const AttendCall&, const UnitArrays&,
                                                         cudaStream_t);
extern template void attend_tiles_of<__half, 64>(const AttendCall&, const UnitArrays&,
                                                 cudaStream_t);
extern template void attend_tiles_of<__half, 128>(const AttendCall&, const UnitArrays&,
                                                  cudaStream_t);

bool has_tiles(Number number, int head_dim) {
  return number != Number::kFloat32 && (head_dim == 64 || head_dim == 128);
}

void attend_tiles(const AttendCall& call, const UnitArrays& units, cudaStream_t stream) {
  const bool is_bfloat16 = call.number == Number::kBFloat16;
  if (!has_tiles(call.number, call.head_dim))
    throw std::runtime_error("tiled attention has head sizes 64 and 128 in 16-bit precisions");
  if (call.head_dim == 64) {
    is_bfloat16 ? attend_tiles_of<__nv_bfloat16, 64>(call, units, stream)
                : attend_tiles_of<__half, 64>(call, units, stream);
  } else {
    is_bfloat16 ? attend_tiles_of<__nv_bfloat16, 128>(call, units, stream)
                : attend_tiles_of<__half, 128>(call, units, stream);
  }
}

}  // namespace slime::kernels::cuda
