#include "kernels/cuda/attention/attend_exact.cuh"

namespace slime::kernels::cuda {
template void attend_exact_of<__nv_bfloat16, 256>(const AttendCall&, const ExactArrays&, float*,
                                                  cudaStream_t);
}
