#pragma once

/// The workloads of bench/gpu/workloads.json on this machine's GPU.

#include <cstdint>
#include <string>
#include <vector>

#include "bench/made_up_model.h"

namespace slime::bench {

struct GpuWorkloadOptions {
  std::vector<std::string> names;
  std::string file = kWorkloadsFile;
  int repeats = 2;  // the best counts
  int64_t max_prefill_tokens = 8192;
  int64_t max_running_requests = 256;
  int64_t context_length = 8448;
  std::string kv_cache_dtype = "auto";
  bool shares_prompt_reads = true;
  int tp = 1;                // ranks of the engine, each with a GPU of this machine
  bool nccl_alone = false;   // of ranks: small ones too
  bool has_profile = false;  // what fills the first rank's GPU, one more run of each workload
};

/// Prints one JSON line per workload. Throws ConfigError, with the names there are, for another.
void measure_gpu_workloads(const GpuWorkloadOptions& options);

}  // namespace slime::bench
