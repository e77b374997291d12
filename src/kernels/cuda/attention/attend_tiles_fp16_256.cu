#include "kernels/cuda/attention/attend_tiles.cuh"

namespace slime::kernels::cuda {
template void attend_tiles_of<__half, __half, 256>(const AttendCall&, const UnitArrays&,
                                                   cudaStream_t);
}
