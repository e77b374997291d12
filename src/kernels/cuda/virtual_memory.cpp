#include "kernels/cuda/virtual_memory.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "core/error.h"

namespace slime::kernels::cuda {
namespace {

/// The driver's calls. Its library is in the process: the runtime loads it when it opens a GPU.
struct Driver {
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_addresses = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
};

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr)
    throw std::runtime_error(fmt::format("the NVIDIA driver has no {}; it is too old", name));
}

const Driver& driver() {
  static const Driver calls = [] {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    Driver found;
    find(library, "cuMemAddressReserve", found.reserve);
    find(library, "cuMemAddressFree", found.free_addresses);
    find(library, "cuMemCreate", found.create);
    find(library, "cuMemRelease", found.release);
    find(library, "cuMemMap", found.map);
    find(library, "cuMemUnmap", found.unmap);
    find(library, "cuMemSetAccess", found.set_access);
    find(library, "cuMemGetAllocationGranularity", found.granularity);
    return found;
  }();
  return calls;
}

void check_driver(CUresult status, const char* what) {
  if (status != CUDA_SUCCESS)
    throw std::runtime_error(
        fmt::format("{}: CUDA driver error {}", what, static_cast<int>(status)));
}

/// Pages are taken in pieces of this size: one handle for all of it would need them in one piece.
constexpr int64_t kPieceBytes = int64_t{1} << 30;

CUmemAllocationProp on_device(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

}  // namespace

VirtualMemory::VirtualMemory(int device, int64_t bytes, std::atomic<int64_t>& mapped_bytes)
    : device_(device), mapped_bytes_(mapped_bytes) {
  check(bytes > 0, "reserved memory has a size");
  const CUmemAllocationProp properties = on_device(device);
  size_t granularity = 0;
  check_driver(
      driver().granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "cuMemGetAllocationGranularity");
  const auto unit = static_cast<int64_t>(granularity);
  size_ = (bytes + unit - 1) / unit * unit;
  check_driver(driver().reserve(&begin_, static_cast<size_t>(size_), 0, 0, 0),
               "cuMemAddressReserve");
  try {
    map();
  } catch (...) {
    driver().free_addresses(begin_, static_cast<size_t>(size_));
    throw;
  }
}

VirtualMemory::~VirtualMemory() {
  if (is_mapped_) {
    cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_)));
    driver().unmap(begin_, static_cast<size_t>(size_));
    mapped_bytes_ -= size_;
  }
  driver().free_addresses(begin_, static_cast<size_t>(size_));
}

void VirtualMemory::unmap() {
  if (!is_mapped_) return;
  // sync: the pages must not go while a kernel uses them. Not all of the device: see GpuMemory.
  if (cudaStreamSynchronize(
          c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_))) != cudaSuccess)
    throw std::runtime_error("the GPU failed before its memory was given back");
  check_driver(driver().unmap(begin_, static_cast<size_t>(size_)), "cuMemUnmap");
  is_mapped_ = false;
  mapped_bytes_ -= size_;
}

void VirtualMemory::map() {
  if (is_mapped_) return;
  const CUmemAllocationProp properties = on_device(device_);
  int64_t done = 0;
  CUresult status = CUDA_SUCCESS;
  while (done < size_ && status == CUDA_SUCCESS) {
    const auto piece = static_cast<size_t>(std::min(kPieceBytes, size_ - done));
    CUmemGenericAllocationHandle handle = 0;
    status = driver().create(&handle, piece, &properties, 0);
    if (status != CUDA_SUCCESS) break;
    status = driver().map(begin_ + static_cast<size_t>(done), piece, 0, handle, 0);
    driver().release(handle);  // the mapping keeps the pages
    if (status == CUDA_SUCCESS) done += static_cast<int64_t>(piece);
  }
  if (status == CUDA_SUCCESS) {
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    status = driver().set_access(begin_, static_cast<size_t>(size_), &access, 1);
  }
  if (status != CUDA_SUCCESS) {
    if (done > 0) driver().unmap(begin_, static_cast<size_t>(done));
    TORCH_CHECK_WITH(OutOfMemoryError, status != CUDA_ERROR_OUT_OF_MEMORY,
                     "CUDA out of memory: ", size_, " bytes were to be mapped, ", done,
                     " could be");
    check_driver(status, "mapping memory");
  }
  is_mapped_ = true;
  mapped_bytes_ += size_;
}

Tensor VirtualMemory::view(int64_t offset_bytes, at::IntArrayRef sizes, at::ScalarType type) const {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t size : sizes) bytes *= size;
  check(offset_bytes >= 0 && offset_bytes + bytes <= size_, "a view lies inside its memory");
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(device_));
  return at::from_blob(reinterpret_cast<void*>(begin_ + static_cast<size_t>(offset_bytes)), sizes,
                       at::TensorOptions(type).device(device));
}

}  // namespace slime::kernels::cuda
