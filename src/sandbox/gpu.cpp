#include "sandbox/gpu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
#include <system_error>

#include "core/error.h"

namespace slime::sandbox {
namespace {

namespace fs = std::filesystem;

/// "nvidia0, nvidia3": the GPUs' own files, and not nvidiactl.
std::vector<std::string> gpus_in(const fs::path& folder) {
  constexpr std::string_view kPrefix = "nvidia";
  std::vector<std::string> names;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.size() > kPrefix.size() && name.starts_with(kPrefix) &&
        name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos)
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

GpuFiles files_of_gpu(int number, const GpuPlaces& places) {
  GpuFiles files;
  std::error_code none;
  for (const std::string& name :
       {std::string("nvidiactl"), std::string("nvidia-uvm"), fmt::format("nvidia{}", number)}) {
    const fs::path path = places.devices / name;
    if (!fs::exists(path, none)) {
      const std::vector<std::string> known = gpus_in(places.devices);
      throw ConfigError(fmt::format(
          "GPU {}: there is no {}; {}", number, path.string(),
          known.empty() ? "this machine shows no NVIDIA GPU"
                        : fmt::format("its GPUs are {}; a driver that was just loaded makes the "
                                      "files at its first use: nvidia-smi",
                                      fmt::join(known, ", "))));
    }
    files.devices.push_back(path);
  }
  for (const fs::path& folder : places.libraries) {
    if (!fs::exists(folder / "libcuda.so.1", none)) continue;
    files.libraries = folder;
    // The loader knows the system's folders by itself; elsewhere it has to be told.
    files.environment.push_back("LD_LIBRARY_PATH=" + folder.string());
    return files;
  }
  throw ConfigError(fmt::format(
      "GPU {}: there is no libcuda.so.1, the driver's library, in {}", number,
      fmt::join(places.libraries |
                    std::views::transform([](const fs::path& folder) { return folder.string(); }),
                ", ")));
}

}  // namespace slime::sandbox
