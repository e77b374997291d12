#include "kernels/gpu/utilization.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace slime::kernels {
namespace {

// Of nvml.h, whose numbers and layouts NVIDIA keeps.
using NvmlDevice = void*;
struct NvmlRates {
  unsigned int gpu = 0;     // per cent of the last sample in which a kernel ran
  unsigned int memory = 0;  // in which memory was read or written
};
constexpr int kNvmlSuccess = 0;

struct Nvml {
  int (*init)();
  int (*count)(unsigned int*);
  int (*by_index)(unsigned int, NvmlDevice*);
  int (*by_uuid)(const char*, NvmlDevice*);
  int (*rates)(NvmlDevice, NvmlRates*);
};

/// False: a function is not there.
bool find(void* library, Nvml& nvml) {
  const auto take = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        ::dlsym(library, name));  // NOLINT: what dlsym gives
    return function != nullptr;
  };
  return take(nvml.init, "nvmlInit_v2") && take(nvml.count, "nvmlDeviceGetCount_v2") &&
         take(nvml.by_index, "nvmlDeviceGetHandleByIndex_v2") &&
         take(nvml.by_uuid, "nvmlDeviceGetHandleByUUID") &&
         take(nvml.rates, "nvmlDeviceGetUtilizationRates");
}

/// Those of CUDA_VISIBLE_DEVICES, or all.
std::vector<NvmlDevice> visible(const Nvml& nvml) {
  std::vector<NvmlDevice> devices;
  unsigned int count = 0;
  if (nvml.count(&count) != kNvmlSuccess) return devices;
  const auto add = [&](unsigned int index) {
    if (NvmlDevice device = nullptr; nvml.by_index(index, &device) == kNvmlSuccess)
      devices.push_back(device);
  };
  const char* words = std::getenv("CUDA_VISIBLE_DEVICES");
  if (words == nullptr) {
    for (unsigned int index = 0; index < count; ++index) add(index);
    return devices;
  }
  std::string_view rest = words;
  while (!rest.empty()) {
    const std::string word(rest.substr(0, rest.find(',')));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    unsigned int index = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), index);
    if (error == std::errc() && end == word.data() + word.size() && index < count) {
      add(index);
    } else if (NvmlDevice device = nullptr; nvml.by_uuid(word.c_str(), &device) == kNvmlSuccess) {
      devices.push_back(device);
    } else {
      break;  // as CUDA does: what follows a wrong one does not count
    }
  }
  return devices;
}

}  // namespace

ReadUtilization nvml_utilization() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);  // stays until the process ends
  Nvml nvml{};
  if (library == nullptr || !find(library, nvml) || nvml.init() != kNvmlSuccess) return nullptr;
  std::vector<NvmlDevice> devices = visible(nvml);
  if (devices.empty()) return nullptr;
  return [nvml, devices = std::move(devices)] {
    std::vector<double> shares;
    for (const NvmlDevice device : devices) {
      NvmlRates rates;
      // MIG slices have no rates of their own.
      if (nvml.rates(device, &rates) != kNvmlSuccess) return std::vector<double>();
      shares.push_back(rates.gpu / 100.0);
    }
    return shares;
  };
}

GpuUtilization::GpuUtilization(ReadUtilization read, std::chrono::milliseconds period)
    : read_(std::move(read)) {
  if (read_ == nullptr) return;
  thread_ = std::jthread([this, period](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any ended;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      sample();
      ended.wait_for(lock, stop, period, [] { return false; });
    }
  });
}

void GpuUtilization::sample() {
  const std::vector<double> shares = read_();
  if (shares.empty()) return;
  const std::lock_guard lock(mutex_);
  sums_.resize(shares.size());
  for (std::size_t i = 0; i < shares.size(); ++i) sums_[i] += shares[i];
  ++count_;
}

std::vector<double> GpuUtilization::take() {
  const std::lock_guard lock(mutex_);
  std::vector<double> means = std::exchange(sums_, {});
  for (double& mean : means) mean /= std::max(1, count_);
  count_ = 0;
  return means;
}

}  // namespace slime::kernels
