#include "kernels/gpu/rocm.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <string>
#include <system_error>

namespace slime::kernels {
namespace {

namespace fs = std::filesystem;

constexpr int kHipSuccess = 0;
constexpr int kHipNoDevice = 100;
/// Either hides devices: HIP's own variable, and that of the layer below it.
constexpr const char* kVisibilityVariables[] = {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                                "CUDA_VISIBLE_DEVICES"};
/// A version is some characters; a file of another kind is not read on.
constexpr std::size_t kLongestVersion = 64;

std::string first_line(const fs::path& file) {
  std::ifstream stream(file);
  std::array<char, kLongestVersion> text{};
  stream.getline(text.data(), text.size());
  const std::string line = text.data();
  const bool is_version = !line.empty() && line.find_first_not_of("0123456789.-") == line.npos;
  return is_version ? line : std::string();
}

/// The driver's GPUs: nodes with processing units (a node without any is a processor's).
std::vector<std::string> gfx_of_driver(const fs::path& root) {
  std::vector<std::pair<int, std::string>> found;
  std::error_code none;
  for (const auto& node : fs::directory_iterator(root / "sys/class/kfd/kfd/topology/nodes", none)) {
    std::ifstream properties(node.path() / "properties");
    int target = 0;
    std::string name;
    for (long value = 0; properties >> name >> value;)
      if (name == "gfx_target_version") target = static_cast<int>(value);
    if (target > 0) found.emplace_back(std::atoi(node.path().filename().c_str()), gfx_name(target));
  }
  std::ranges::sort(found);
  std::vector<std::string> names;
  for (auto& [number, gfx] : found) names.push_back(std::move(gfx));
  return names;
}

std::string visibility(const RocmPlaces& places) {
  std::vector<std::string> set;
  for (const char* name : kVisibilityVariables)
    if (const auto value = places.variable(name)) set.push_back(fmt::format("{}={}", name, *value));
  return set.empty() ? "" : fmt::format(" ({})", fmt::join(set, ", "));
}

std::optional<HipCount> count_by_library(const std::string& library) {
  void* runtime = ::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (runtime == nullptr) return std::nullopt;
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(runtime, "hipGetDeviceCount"));
  if (count == nullptr) return std::nullopt;
  HipCount found;
  found.status = count(&found.devices);
  return found;
}

void probe_driver(const RocmPlaces& places, Rocm& rocm) {
  const fs::path kfd = places.root / "dev/kfd";
  std::error_code none;
  rocm.has_driver = fs::exists(kfd, none);
  if (!rocm.has_driver) {
    rocm.missing.emplace_back(
        "there is no /dev/kfd: the amdgpu driver is not loaded, or the container was started "
        "without --device /dev/kfd --device /dev/dri");
  } else if (::access(kfd.c_str(), R_OK | W_OK) != 0) {
    rocm.missing.emplace_back(
        "/dev/kfd is there and this user may not open it: add the user to the groups render and "
        "video (docker run --group-add video --group-add render)");
  }
  rocm.gfx = gfx_of_driver(places.root);
}

void probe_runtime(const RocmPlaces& places, Rocm& rocm) {
  for (const std::string& name : hip_runtimes()) {
    const std::optional<HipCount> count = places.count(name);
    if (!count) continue;
    rocm.runtime = name;
    if (count->status == kHipNoDevice) {
      rocm.missing.push_back(fmt::format("no AMD GPU (hipErrorNoDevice){}", visibility(places)));
    } else if (count->status != kHipSuccess) {
      rocm.missing.push_back(
          fmt::format("{} cannot count its devices: HIP error {}", name, count->status));
    } else if (count->devices == 0) {
      rocm.missing.push_back(fmt::format("{} shows no device{}", name, visibility(places)));
    } else {
      rocm.num_visible = count->devices;
    }
    return;
  }
  rocm.missing.push_back(
      fmt::format("no HIP runtime can be loaded ({}): install ROCm 7, and put its lib folder into "
                  "LD_LIBRARY_PATH",
                  fmt::join(hip_runtimes(), ", ")));
}

}  // namespace

RocmPlaces real_places() {
  return {.root = "/",
          .variable = [](const std::string& name) -> std::optional<std::string> {
            const char* value = std::getenv(name.c_str());
            if (value == nullptr) return std::nullopt;
            return value;
          },
          .count = count_by_library};
}

std::vector<std::string> hip_runtimes() {
  return {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
}

Rocm probe_rocm(const RocmPlaces& places) {
  Rocm rocm;
  probe_driver(places, rocm);
  probe_runtime(places, rocm);
  rocm.version = first_line(places.root / "opt/rocm/.info/version");
  return rocm;
}

std::string gfx_name(int target_version) {
  // The last two are hexadecimal digits in the name: stepping 10 of gfx90a.
  return fmt::format("gfx{}{:x}{:x}", target_version / 10000, target_version / 100 % 100,
                     target_version % 100);
}

}  // namespace slime::kernels
