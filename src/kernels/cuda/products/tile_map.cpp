#include "kernels/cuda/products/tile_map.h"

#include <dlfcn.h>

#include <cstddef>

namespace slime::kernels::cuda {
namespace {

/// The driver's library is in the process: the runtime loads it when it opens a GPU.
decltype(&cuTensorMapEncodeTiled) encoder() {
  static const auto found = [] {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    auto* function = ::dlsym(library, "cuTensorMapEncodeTiled");
    if (function == nullptr)
      throw std::runtime_error("the NVIDIA driver has no cuTensorMapEncodeTiled; it is too old");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  return found;
}

constexpr uint64_t kBytes = 2;  // of a number

/// strides: of all dimensions but the first.
template <size_t kDims>
CUtensorMap encode(Number number, const void* matrix, int64_t rows, int64_t columns,
                   const cuuint64_t (&sizes)[kDims], const cuuint64_t (&strides)[kDims - 1],
                   const cuuint32_t (&box)[kDims]) {
  cuuint32_t steps[kDims];
  for (cuuint32_t& step : steps) step = 1;
  CUtensorMap map{};
  const CUresult status =
      encoder()(&map,
                number == Number::kFloat16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                           : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                kDims, const_cast<void*>(matrix), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw std::runtime_error("tiles of a matrix of " + std::to_string(rows) + " by " +
                             std::to_string(columns) + ": CUDA driver error " +
                             std::to_string(static_cast<int>(status)));
  return map;
}

}  // namespace

CUtensorMap tile_map(Number number, const void* matrix, int64_t rows, int64_t columns, int box_rows,
                     int box_slabs) {
  const auto slabs = static_cast<cuuint64_t>(columns / kSlab);
  const cuuint64_t row_bytes = kBytes * static_cast<cuuint64_t>(columns);
  return encode<3>(number, matrix, rows, columns, {kSlab, static_cast<cuuint64_t>(rows), slabs},
                   {row_bytes, kSlab * kBytes},
                   {kSlab, static_cast<cuuint32_t>(box_rows), static_cast<cuuint32_t>(box_slabs)});
}

CUtensorMap group_tile_map(Number number, const void* matrix, int64_t groups, int64_t group_rows,
                           int64_t columns, int box_rows, int box_slabs) {
  const auto slabs = static_cast<cuuint64_t>(columns / kSlab);
  const auto rows = static_cast<cuuint64_t>(group_rows), count = static_cast<cuuint64_t>(groups);
  const cuuint64_t row_bytes = kBytes * static_cast<cuuint64_t>(columns);
  return encode<4>(number, matrix, groups * group_rows, columns, {kSlab, rows, count, slabs},
                   {row_bytes, rows * row_bytes, kSlab * kBytes},
                   {kSlab, static_cast<cuuint32_t>(box_rows), static_cast<cuuint32_t>(groups),
                    static_cast<cuuint32_t>(box_slabs)});
}

CUtensorMap pair_tile_map(Number number, const void* matrix, int64_t pairs, int64_t columns,
                          int box_pairs) {
  const auto slabs = static_cast<cuuint64_t>(columns / kSlab);
  const auto count = static_cast<cuuint64_t>(pairs);
  const cuuint64_t row_bytes = kBytes * static_cast<cuuint64_t>(columns);
  return encode<5>(number, matrix, 2 * pairs, columns, {kSlab, 4, 2, count / 4, slabs},
                   {row_bytes, count * row_bytes, 4 * row_bytes, kSlab * kBytes},
                   {kSlab, 4, 2, static_cast<cuuint32_t>(box_pairs) / 4, 1});
}

CUtensorMap row_map(const void* matrix, int64_t rows, int64_t columns, int box_rows) {
  return encode<2>(Number::kBFloat16, matrix, rows, columns,
                   {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)},
                   {kBytes * static_cast<cuuint64_t>(columns)},
                   {kSlab, static_cast<cuuint32_t>(box_rows)});
}

CUtensorMap expert_pair_map(const void* matrix, int64_t experts, int64_t pairs, int64_t columns,
                            int box_pairs) {
  const auto width = static_cast<cuuint64_t>(columns), count = static_cast<cuuint64_t>(pairs);
  const cuuint64_t row_bytes = kBytes * width;
  return encode<4>(Number::kBFloat16, matrix, 2 * experts * pairs, columns,
                   {width, 8, 2 * static_cast<cuuint64_t>(experts), count / 8},
                   {row_bytes, count * row_bytes, 8 * row_bytes},
                   {kSlab, 8, 2, static_cast<cuuint32_t>(box_pairs) / 8});
}

}  // namespace slime::kernels::cuda
