#pragma once

/// Declaration of kernels that run in clusters of thread blocks.

/// Thread blocks of a cluster; GPUs before 9.0 have none, and the kernel's body is empty there.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define SLIME_CLUSTER_OF(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define SLIME_CLUSTER_OF(blocks)
#endif
