#include "kernels/cuda/attention/attend_tiles.cuh"

namespace slime::kernels::cuda {
template void attend_tiles_of<__nv_bfloat16, __nv_bfloat16, 256>(const AttendCall&,
                                                                 const UnitArrays&, cudaStream_t);
}
