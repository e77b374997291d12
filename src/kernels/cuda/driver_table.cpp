#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>

#include "kernels/cuda/driver.h"

namespace slime::kernels::cuda {
namespace {

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr)
    throw std::runtime_error(fmt::format("the NVIDIA driver has no {}; it is too old", name));
}

}  // namespace

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
    find(library, "cuMemExportToShareableHandle", found.export_handle);
    return found;
  }();
  return calls;
}

}  // namespace slime::kernels::cuda
