#include "kernels/gpu/gpu.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "core/error.h"
#include "kernels/cuda/library.h"
#include "kernels/gpu/interface.h"
#include "kernels/gpu/peer_collectives.h"

namespace slime::kernels {
namespace {

std::atomic<Gpu*> the_gpu{nullptr};  // set once, never freed: the driver outlives no destructor

/// Global, so that libslime_cuda.so finds LibTorch's CUDA side without having been linked with it.
void load_library(const std::string& name, const std::string& help) {
  if (::dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  throw ConfigError(fmt::format("{} cannot be loaded: {}. {}", name, ::dlerror(), help));
}

std::string own_library() {
  const std::filesystem::path beside =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / cuda::kLibraryName;
  return std::filesystem::exists(beside) ? beside.string() : cuda::kLibraryName;
}

Gpu* load() {
  if (!std::filesystem::exists("/dev/nvidiactl")) {
    throw ConfigError("no NVIDIA GPU is visible on this machine: there is no /dev/nvidiactl");
  }
  load_library("libtorch_cuda.so",
               "The CUDA side of LibTorch comes with `SLIME_CUDA=1 ./dev setup`, or put the "
               "torch/lib folder of a torch 2.11.0 (CUDA 13) installation into LD_LIBRARY_PATH");
  load_library("libnvrtc.so.13", "It comes with CUDA 13 and with the CUDA side of LibTorch");
  const std::string library = own_library();
  load_library(library, "`SLIME_CUDA=1 ./dev build` makes it");
  void* interface = ::dlsym(RTLD_DEFAULT, cuda::kInterfaceFunction);
  void* open = ::dlsym(RTLD_DEFAULT, cuda::kOpenFunction);
  if (interface == nullptr || open == nullptr) {
    throw ConfigError(interface_problem(library, "of an older program"));
  }
  std::string problem =
      interface_problem(library, reinterpret_cast<cuda::InterfaceFunction*>(interface)());
  if (!problem.empty()) throw ConfigError(problem);
  Gpu* gpu = reinterpret_cast<cuda::OpenFunction*>(open)(problem);
  if (gpu == nullptr) throw ConfigError(problem);
  return gpu;
}

}  // namespace

/// The driver's own library: the runtime's would open a device.
int count_gpus() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 0;
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  if (init == nullptr || count == nullptr || init(0) != 0 || count(&devices) != 0) return 0;
  return devices;
}

std::string missing_for_gpus() {
  if (!std::filesystem::exists("/dev/nvidiactl")) return "no NVIDIA GPU is visible";
  if (count_gpus() == 0) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return fmt::format(
        "no NVIDIA GPU is visible{}",
        visible == nullptr ? "" : fmt::format(" (CUDA_VISIBLE_DEVICES={})", visible));
  }
  const std::string library = own_library();
  if (library != cuda::kLibraryName || ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD))
    return "";
  return "an NVIDIA GPU is there, but this program was built without kernels for it "
         "(SLIME_CUDA=1 ./dev build)";
}

std::unique_ptr<PeerCollectives> make_peer_collectives(const PeerCollectivesConfig& config) {
  auto* device = dynamic_cast<PeerDevice*>(&opened_gpu());
  if (device == nullptr) throw std::runtime_error("this GPU has no kernels for peers");
  return device->make_peers(config);
}

Gpu& open_gpu() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (the_gpu == nullptr) {
    the_gpu = load();
    at::set_num_threads(std::min(at::get_num_threads(), kMostHostThreads));
  }
  return *the_gpu;
}

Gpu& opened_gpu() {
  Gpu* gpu = the_gpu.load(std::memory_order_acquire);
  check(gpu != nullptr, "a GPU is opened before tensors are put on it");
  return *gpu;
}

}  // namespace slime::kernels
