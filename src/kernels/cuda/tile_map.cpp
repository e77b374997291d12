#include "kernels/cuda/tile_map.h"

#include <dlfcn.h>

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

}  // namespace

CUtensorMap tile_map(Number number, const void* matrix, int64_t rows, int64_t columns, int box_rows,
                     int box_slabs) {
  constexpr uint64_t kBytes = 2;
  const cuuint64_t sizes[] = {kSlab, static_cast<cuuint64_t>(rows),
                              static_cast<cuuint64_t>(columns / kSlab)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(columns) * kBytes, kSlab * kBytes};
  const cuuint32_t box[] = {kSlab, static_cast<cuuint32_t>(box_rows),
                            static_cast<cuuint32_t>(box_slabs)};
  const cuuint32_t steps[] = {1, 1, 1};
  CUtensorMap map{};
  const CUresult status =
      encoder()(&map,
                number == Number::kFloat16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                           : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                3, const_cast<void*>(matrix), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw std::runtime_error("tiles of a matrix of " + std::to_string(rows) + " by " +
                             std::to_string(columns) + ": CUDA driver error " +
                             std::to_string(static_cast<int>(status)));
  return map;
}

}  // namespace slime::kernels::cuda
