#pragma once

/// The parts of the C interfaces of cuBLASLt and cuBLAS that we call, declared here so that building needs none of
/// NVIDIA's cuBLAS package (400 MB). Names and values: cuBLAS library documentation, section
/// "cuBLASLt API" and "cublasSetSmCountTarget()". At run time LibTorch brings both libraries.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

extern "C" {

using cublasLtHandle_t = struct cublasLtContext*;
using cublasLtMatmulDesc_t = struct cublasLtMatmulDescOpaque*;
using cublasLtMatrixLayout_t = struct cublasLtMatrixLayoutOpaque*;
using cublasLtMatmulPreference_t = struct cublasLtMatmulPreferenceOpaque*;

struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
};

struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  int state;
  float wavesCount;
  int reserved[4];
};

int cublasLtCreate(cublasLtHandle_t* handle);
int cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, int compute_type, int scale_type);
int cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc);
int cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, int attribute, const void* value,
                                   size_t bytes);
int cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, int type, uint64_t rows,
                               uint64_t columns, int64_t leading);
int cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout);
int cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, int attribute,
                                     const void* value, size_t bytes);
int cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference);
int cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference);
int cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, int attribute,
                                         const void* value, size_t bytes);
int cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                   cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                   cublasLtMatmulPreference_t preference, int num_requested,
                                   cublasLtMatmulHeuristicResult_t* results, int* num_returned);
int cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            const cublasLtMatmulAlgo_t* algo,
                            cublasLtMatmulHeuristicResult_t* result);
int cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo, int attribute,
                                         void* value, size_t bytes, size_t* bytes_written);
int cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                   const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                   cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                   cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                   const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                   cudaStream_t stream);

struct cublasContext;
int cublasSetSmCountTarget(cublasContext* handle, int processors);  // 0: all

}  // extern "C"

namespace at::cuda {
/// Of this thread: LibTorch's own declaration brings cuBLAS's header.
cublasContext* getCurrentCUDABlasHandle();
}  // namespace at::cuda

namespace slime::kernels::cuda::cublaslt {

inline constexpr int kCompute32F = 68;
inline constexpr int kReal32F = 0, kReal16F = 2, kReal16BF = 14;
inline constexpr int kTransposed = 1;
inline constexpr int kDescTransA = 3, kDescEpilogue = 7, kDescBiasPointer = 8, kDescProcessors = 15,
                     kDescBiasDataType = 26;
inline constexpr int kEpilogueBias = 4;
inline constexpr int kPreferenceMaxWorkspaceBytes = 1, kPreferenceReductionSchemes = 3;
inline constexpr int kPreferenceMinAlignments[] = {5, 6, 7, 8};  // of a, b, c, d
inline constexpr int kLayoutColumns = 3;
inline constexpr int kConfigSplitK = 2, kConfigReductionScheme = 3;
inline constexpr uint32_t kReductionNone = 0;

}  // namespace slime::kernels::cuda::cublaslt
