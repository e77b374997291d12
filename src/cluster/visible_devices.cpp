#include "cluster/visible_devices.h"

#include <cstdlib>
#include <filesystem>

#include "core/error.h"

namespace slime::cluster {

std::string visible_device(std::optional<std::string_view> own, int index) {
  check(index >= 0, "devices are counted from 0");
  if (!own) return std::to_string(index);
  std::string_view rest = *own;
  for (int i = 0; i < index; ++i) {
    const std::size_t comma = rest.find(',');
    check(comma != std::string_view::npos, "a worker's device is one that this process sees");
    rest.remove_prefix(comma + 1);
  }
  rest = rest.substr(0, rest.find(','));
  constexpr std::string_view kBlank = " \t";
  const std::size_t begin = rest.find_first_not_of(kBlank);
  check(begin != std::string_view::npos, "a worker's device is one that this process sees");
  return std::string(rest.substr(begin, rest.find_last_not_of(kBlank) + 1 - begin));
}

bool has_visible_hip_devices() {
  return std::getenv(kVisibleHipDevices) != nullptr && std::filesystem::exists("/dev/kfd");
}

std::string visible_device(int index) { return visible_devices(index, 1); }

std::string visible_devices(std::optional<std::string_view> own, int first, int count) {
  std::string devices = visible_device(own, first);
  for (int i = 1; i < count; ++i) devices += "," + visible_device(own, first + i);
  return devices;
}

std::string visible_devices(int first, int count) {
  const char* own = std::getenv(has_visible_hip_devices() ? kVisibleHipDevices : kVisibleDevices);
  return visible_devices(own == nullptr ? std::nullopt : std::optional<std::string_view>(own),
                         first, count);
}

}  // namespace slime::cluster
