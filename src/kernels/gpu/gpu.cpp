#include "kernels/gpu/gpu.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "core/error.h"
#include "kernels/cuda/library.h"
#include "kernels/gpu/interface.h"
#include "kernels/gpu/peer_collectives.h"
#include "kernels/gpu/rocm.h"
#include "kernels/gpu/self_tests.h"

namespace slime::kernels {
namespace {

std::atomic<Gpu*> the_gpu{nullptr};  // set once, never freed: the driver outlives no destructor
std::atomic<GpuPlatform> the_platform{GpuPlatform::kCuda};
GpuAbilities the_abilities;  // written before the_gpu is set

constexpr const char* kHipLibrary = "libslime_hip.so";
/// More than a piece of the driver's memory (kernels/cuda/virtual_memory.cpp).
constexpr int64_t kTestedBytes = (int64_t{1} << 30) + (int64_t{64} << 20);

/// Global, so that libslime_cuda.so finds LibTorch's CUDA side without having been linked with it.
void load_library(const std::string& name, const std::string& help) {
  if (::dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  throw ConfigError(fmt::format("{} cannot be loaded: {}. {}", name, ::dlerror(), help));
}

std::string own_library(const char* name) {
  const std::filesystem::path beside =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
  return std::filesystem::exists(beside) ? beside.string() : name;
}

/// Opens the GPU by the functions of a library that is in the process.
Gpu* open_by(const std::string& library, const std::string& without_functions) {
  void* interface = ::dlsym(RTLD_DEFAULT, cuda::kInterfaceFunction);
  void* open = ::dlsym(RTLD_DEFAULT, cuda::kOpenFunction);
  if (interface == nullptr || open == nullptr) throw ConfigError(without_functions);
  std::string problem =
      interface_problem(library, reinterpret_cast<cuda::InterfaceFunction*>(interface)());
  if (!problem.empty()) throw ConfigError(problem);
  Gpu* gpu = reinterpret_cast<cuda::OpenFunction*>(open)(problem);
  if (gpu == nullptr) throw ConfigError(problem);
  return gpu;
}

Gpu* load_cuda() {
  if (!std::filesystem::exists("/dev/nvidiactl")) {
    throw ConfigError("no NVIDIA GPU is visible on this machine: there is no /dev/nvidiactl");
  }
  load_library("libtorch_cuda.so",
               "The CUDA side of LibTorch comes with `SLIME_CUDA=1 ./dev setup`, or put the "
               "torch/lib folder of a torch 2.11.0 (CUDA 13) installation into LD_LIBRARY_PATH");
  load_library("libnvrtc.so.13", "It comes with CUDA 13 and with the CUDA side of LibTorch");
  const std::string library = own_library(cuda::kLibraryName);
  load_library(library, "`SLIME_CUDA=1 ./dev build` makes it");
  return open_by(library, interface_problem(library, "of an older program"));
}

/// What versions of AMD's stack are known to fail at is tried before it is relied on (docs/rocm.md).
GpuAbilities tried_abilities(Gpu& gpu) {
  GpuAbilities abilities;
  const auto lose = [&](bool& ability, const std::string& sentence) {
    ability = false;
    abilities.lost.push_back(sentence);
  };
  try {
    const auto record = [&gpu](const std::function<void()>& body) {
      return gpu.record(body, nullptr, GraphLaunch::kWhole);
    };
    const int64_t wrong = replay_differences(gpu.device(), at::kCUDA, record, /*rounds=*/20);
    if (wrong > 0)
      lose(
          abilities.records,
          fmt::format("steps are not recorded: {} bytes of replays differed from launches", wrong));
  } catch (const std::exception& error) {
    lose(abilities.records, fmt::format("steps are not recorded: {}", error.what()));
  }
  try {
    const int64_t bytes = std::min(kTestedBytes, gpu.free_bytes() / 4);
    const std::string problem = problem_of(returned_memory(gpu, bytes, /*rounds=*/2));
    if (!problem.empty())
      lose(abilities.gives_memory_back, fmt::format("nothing is offloaded: {}", problem));
  } catch (const std::exception& error) {
    lose(abilities.gives_memory_back, fmt::format("nothing is offloaded: {}", error.what()));
  }
  return abilities;
}

Gpu* load_hip() {
  if (const std::string missing = missing_for_hip(); !missing.empty())
    throw ConfigError(fmt::format("--device hip: {}", missing));
  load_library("libtorch_hip.so",
               "The ROCm side of LibTorch 2.11.0 comes with a torch for ROCm 7; put its torch/lib "
               "folder into LD_LIBRARY_PATH (docs/rocm.md)");
  const std::string library = own_library(kHipLibrary);
  load_library(library, "`./dev hip` makes it (docs/rocm.md)");
  fmt::print(stderr, "{}\n", kRocmLabel);
  Gpu* gpu = open_by(library, interface_problem(library, "of an older program"));
  the_abilities = tried_abilities(*gpu);
  for (const std::string& sentence : the_abilities.lost)
    fmt::print(stderr, "slime: {}\n", sentence);
  return gpu;
}

/// The driver's own library: the runtime's would open a device.
int count_nvidia_gpus() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 0;
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  if (init == nullptr || count == nullptr || init(0) != 0 || count(&devices) != 0) return 0;
  return devices;
}

}  // namespace

void choose_platform(const std::string& device) {
  if (device != "hip" && device != "cuda") return;
  const GpuPlatform asked = device == "hip" ? GpuPlatform::kHip : GpuPlatform::kCuda;
  check(the_gpu == nullptr || the_platform == asked, "a process has GPUs of one platform");
  the_platform = asked;
}

GpuPlatform gpu_platform() { return the_platform; }

const GpuAbilities& gpu_abilities() { return the_abilities; }

int count_gpus() {
  return the_platform == GpuPlatform::kHip ? probe_rocm().num_visible : count_nvidia_gpus();
}

std::string missing_for_gpus() {
  if (!std::filesystem::exists("/dev/nvidiactl")) return "no NVIDIA GPU is visible";
  if (count_nvidia_gpus() == 0) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return fmt::format(
        "no NVIDIA GPU is visible{}",
        visible == nullptr ? "" : fmt::format(" (CUDA_VISIBLE_DEVICES={})", visible));
  }
  const std::string library = own_library(cuda::kLibraryName);
  if (library != cuda::kLibraryName || ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD))
    return "";
  return "an NVIDIA GPU is there, but this program was built without kernels for it "
         "(SLIME_CUDA=1 ./dev build)";
}

std::string missing_for_hip() {
  const Rocm rocm = probe_rocm();
  if (!rocm.missing.empty()) return fmt::format("{}", fmt::join(rocm.missing, "; "));
  if (own_library(kHipLibrary) != kHipLibrary ||
      ::dlopen("libtorch_hip.so", RTLD_LAZY | RTLD_NOLOAD))
    return "";
  return fmt::format(
      "an AMD GPU is there{}, but this program was built without kernels for it (./dev hip, "
      "docs/rocm.md)",
      rocm.gfx.empty() ? "" : fmt::format(" ({})", rocm.gfx.front()));
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
    the_gpu = the_platform == GpuPlatform::kHip ? load_hip() : load_cuda();
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
