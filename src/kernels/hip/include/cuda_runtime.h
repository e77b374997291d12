#pragma once

/// Stand-in for CUDA's header of this name where host sources are compiled as HIP.

#include "kernels/hip/host_names.h"
