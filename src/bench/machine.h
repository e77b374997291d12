#pragma once

/// Common parts of the benchmarks: the model they run, their threads, and the limits of this
/// machine.

#include <ATen/core/ScalarType.h>

#include <memory>
#include <string>

#include "core/json.h"
#include "model/network.h"

namespace slime::bench {

struct ModelOptions {
  std::string directory;
  std::string dtype = "bfloat16";
  bool random_weights = false;  // the directory needs no more than a config.json
  int threads = 0;              // 0: all cores

  /// Sets the number of threads, then loads.
  std::unique_ptr<model::Network> load() const;
};

/// What no program can exceed here, measured now with the threads that the kernels use.
struct MachineRates {
  double read_bytes_per_second = 0;  // from memory, far beyond the caches
  /// Of square products in the network's precision: the faster of our kernels and ATen's.
  double flops_per_second = 0;
};
MachineRates measure_machine(model::Network& network);

/// {"memory_gb_per_second", "product_gflop_per_second"}
json::object to_json(const MachineRates& rates);

}  // namespace slime::bench
