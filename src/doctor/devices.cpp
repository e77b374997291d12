#include "doctor/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/gpu/gpu.h"

namespace slime::doctor {
namespace {

/// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06 ..." of the kernel's module.
std::string driver_of(const std::filesystem::path& proc) {
  std::ifstream lines(proc / "driver/nvidia/version");
  std::string line;
  std::getline(lines, line);
  const std::size_t name = line.find("Kernel Module");
  if (name == line.npos) return line;
  std::size_t begin = line.find_first_of("0123456789", name);
  if (begin == line.npos) return line;
  return line.substr(begin, line.find(' ', begin) - begin);
}

}  // namespace

Checks check_devices(const std::filesystem::path& proc) {
  Checks checks;
  const std::string driver = driver_of(proc);
  const int count = kernels::count_gpus();
  if (driver.empty() && count == 0) {
    checks.push_back({.area = "devices",
                      .what = "no NVIDIA GPU; runs and servers are on the CPU (--device auto)"});
    return checks;
  }
  if (count == 0) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    checks.push_back(
        {.area = "devices",
         .state = State::kProblem,
         .what = fmt::format(
             "the NVIDIA driver {} is there, and no GPU is visible{}", driver,
             visible == nullptr ? "" : fmt::format(" (CUDA_VISIBLE_DEVICES={})", visible)),
         .cure = "docker run --gpus all; on a cluster ask the scheduler for a GPU"});
    return checks;
  }
  checks.push_back({.area = "devices",
                    .what = fmt::format("{} visible GPU{}, driver {}", count, count == 1 ? "" : "s",
                                        driver.empty() ? "unknown" : driver)});
  if (const std::string missing = kernels::missing_for_gpus(); !missing.empty()) {
    checks.push_back(
        {.area = "devices",
         .state = State::kProblem,
         .what = missing,
         .cure = "pip install slime-rl[cuda], or build with SLIME_CUDA=1 (docs/gpu.md)"});
    return checks;
  }
  try {
    const kernels::Gpu& gpu = kernels::open_gpu();
    checks.push_back(
        {.area = "devices",
         .what = fmt::format("the first one opens: {}, {} of its memory are free",
                             gpu.description(), in_bytes(static_cast<double>(gpu.free_bytes())))});
  } catch (const std::exception& error) {
    checks.push_back({.area = "devices",
                      .state = State::kProblem,
                      .what = fmt::format("the first one cannot be used: {}", error.what()),
                      .cure = "docs/gpu.md has what is needed; --device cpu works without it"});
  }
  return checks;
}

Checks check_amd_devices(const kernels::Rocm& rocm) {
  if (!rocm.is_anything_there()) return {};
  std::vector<std::string> kinds;  // "gfx942 x 8"
  for (std::size_t i = 0, next = 0; i < rocm.gfx.size(); i = next) {
    while (next < rocm.gfx.size() && rocm.gfx[next] == rocm.gfx[i]) ++next;
    kinds.push_back(fmt::format("{} x {}", rocm.gfx[i], next - i));
  }
  Checks checks;
  checks.push_back(
      {.area = "devices",
       .state = State::kNote,
       .what = fmt::format(
           "AMD GPUs: {}; ROCm {}, runtime {}, {} visible",
           kinds.empty() ? "none in the driver's list" : fmt::format("{}", fmt::join(kinds, ", ")),
           rocm.version.empty() ? "of unknown version" : rocm.version,
           rocm.runtime.empty() ? "none" : rocm.runtime, rocm.num_visible),
       .cure = fmt::format("--device hip takes the first one, --device auto none. {}",
                           kernels::kRocmLabel)});
  for (const std::string& sentence : rocm.missing)
    checks.push_back({.area = "devices",
                      .state = State::kNote,
                      .what = sentence,
                      .cure = "--device hip needs it (docs/rocm.md)"});
  return checks;
}

}  // namespace slime::doctor
