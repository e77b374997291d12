#include "kernels/cuda/driver.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>

#include "core/error.h"

namespace slime::kernels::cuda {

void check_driver(CUresult status, const char* what) {
  if (status != CUDA_SUCCESS)
    throw std::runtime_error(
        fmt::format("{}: CUDA driver error {}", what, static_cast<int>(status)));
}

CUmemAllocationProp on_device(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

int64_t whole_pages(int64_t bytes, const CUmemAllocationProp& properties) {
  size_t granularity = 0;
  check_driver(
      driver().granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "cuMemGetAllocationGranularity");
  const auto page = static_cast<int64_t>(granularity);
  return (bytes + page - 1) / page * page;
}

CUresult allow_access(CUdeviceptr begin, int64_t bytes, const CUmemLocation& location) {
  CUmemAccessDesc access{};
  access.location = location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return driver().set_access(begin, static_cast<size_t>(bytes), &access, 1);
}

Tensor view_of(CUdeviceptr begin, int64_t bytes, int device, int64_t offset_bytes,
               at::IntArrayRef sizes, at::ScalarType type) {
  int64_t needed = static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t size : sizes) needed *= size;
  check(offset_bytes >= 0 && offset_bytes + needed <= bytes, "a view lies inside its memory");
  const at::Device on(at::kCUDA, static_cast<c10::DeviceIndex>(device));
  return at::from_blob(reinterpret_cast<void*>(begin + static_cast<size_t>(offset_bytes)), sizes,
                       at::TensorOptions(type).device(on));
}

}  // namespace slime::kernels::cuda
