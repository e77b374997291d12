#pragma once

/// The `--device` option of a command: cpu, cuda, hip, or the device that is present (auto).

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace slime::cli {

struct DeviceOptions {
  std::string device = "auto";  // cpu, cuda or hip once the options are parsed
  double kv_cache_gib = 0;      // 0: 2 GiB on the CPU, most of what is left on a GPU
};

/// Adds --device and --kv-cache-gib.
void add_device_options(CLI::App& app, DeviceOptions& options);

/// Call when the weights are where they stay.
int64_t kv_cache_bytes_of(const DeviceOptions& options);

}  // namespace slime::cli
