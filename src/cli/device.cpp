#include "cli/device.h"

#include <fmt/format.h>

#include "cli/options.h"
#include "engine/engine.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/rocm.h"

namespace slime::cli {
namespace {

constexpr int64_t kGibibyte = int64_t{1} << 30;
/// The rest is for activations, logits and recorded steps.
constexpr double kShareOfFreeMemory = 0.8;

}  // namespace

void add_device_options(CLI::App& app, DeviceOptions& options) {
  app.add_option(
         "--device", options.device,
         fmt::format(
             "cpu or cuda (the first visible GPU); auto: cuda where an NVIDIA GPU is visible. "
             "hip: an AMD GPU ({})",
             kernels::kRocmLabel))
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "hip"}));
  app.parse_complete_callback([&options] {
    if (options.device == "auto")
      options.device = kernels::missing_for_gpus().empty() ? "cuda" : "cpu";
    kernels::choose_platform(options.device);
  });
  app.add_option("--kv-cache-gib", options.kv_cache_gib,
                 "memory for keys and values; default: 2, on a GPU most of what the weights leave")
      ->check(finite_range(0.001, 65536.0));
}

int64_t kv_cache_bytes_of(const DeviceOptions& options) {
  if (options.kv_cache_gib > 0)
    return static_cast<int64_t>(options.kv_cache_gib * static_cast<double>(kGibibyte));
  if (options.device == "cpu") return engine::EngineConfig().kv_cache_bytes;
  return static_cast<int64_t>(kShareOfFreeMemory *
                              static_cast<double>(kernels::opened_gpu().free_bytes()));
}

}  // namespace slime::cli
