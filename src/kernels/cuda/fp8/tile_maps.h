#pragma once

/// TMA descriptors of matrices of codes, with the 128-byte swizzle. What is out of bounds becomes zero.
/// Throw std::runtime_error.

#include <cuda.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace slime::kernels::cuda::fp8 {

template <size_t kDims>
CUtensorMap encoded(const void* codes, const cuuint64_t (&sizes)[kDims],
                    const cuuint64_t (&strides)[kDims - 1], const cuuint32_t (&box)[kDims]) {
  static const auto encode = [] {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    auto* function = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(
        ::dlsym(library, "cuTensorMapEncodeTiled"));
    if (function == nullptr)
      throw std::runtime_error("the NVIDIA driver has no cuTensorMapEncodeTiled; it is too old");
    return function;
  }();
  cuuint32_t steps[kDims];
  for (cuuint32_t& step : steps) step = 1;
  CUtensorMap map{};
  const CUresult status =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, kDims, const_cast<void*>(codes), sizes, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw std::runtime_error("tiles of codes of rows of " + std::to_string(strides[0]) +
                             ": CUDA driver error " + std::to_string(static_cast<int>(status)));
  return map;
}

/// A box is `box_rows` lines of 128 codes of each of `groups` matrices of `rows` rows, one behind the other;
/// coordinates are (input, row, 0).
inline CUtensorMap code_map(const void* codes, int64_t groups, int64_t rows, int64_t inputs,
                            int box_rows) {
  const auto width = static_cast<cuuint64_t>(inputs), count = static_cast<cuuint64_t>(rows);
  return encoded<3>(codes, {width, count, static_cast<cuuint64_t>(groups)}, {width, count * width},
                    {128, static_cast<cuuint32_t>(box_rows), static_cast<cuuint32_t>(groups)});
}

}  // namespace slime::kernels::cuda::fp8
