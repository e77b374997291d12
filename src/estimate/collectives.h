#pragma once

/// Predicted collectives of one training step of a layout, and the step's time.

#include <cstdint>
#include <string>
#include <vector>

#include "comm/parallel_layout.h"
#include "estimate/model_shape.h"
#include "estimate/rates.h"
#include "estimate/workload.h"

namespace slime::estimate {

/// One kind of message of the busiest rank, all of a step together.
struct Collective {
  std::string name;  // "keys and values, gathered"
  std::string axis;  // "cp"
  int64_t ranks = 1;
  bool crosses_hosts = false;
  double calls = 0;
  double bytes = 0;  // that leave the device; what it receives is as much
  double seconds = 0;
};

/// Whether the group of `axis` has members on several hosts of `devices_per_host`, in Megatron's
/// order of ranks.
bool crosses_hosts(const comm::ParallelLayout& layout, comm::Axis axis, int64_t devices_per_host);

/// Of the ranks of the stage that sends most. Those without bytes are left out.
std::vector<Collective> collectives_of_step(const ModelShape& shape,
                                            const comm::ParallelLayout& layout,
                                            const Workload& workload, const Rates& rates,
                                            int64_t devices_per_host);

struct StepTime {
  double computing = 0;    // seconds, of the slowest stage
  double bubble = 0;       // stages wait for the first and the last micro-batch
  double collectives = 0;  // not overlapped with anything
  double flops = 0;        // of all devices, as they are counted: three times the forward pass

  double total() const { return computing + bubble + collectives; }
};

StepTime step_time(const ModelShape& shape, const comm::ParallelLayout& layout,
                   const Workload& workload, const Rates& rates,
                   const std::vector<Collective>& collectives);

}  // namespace slime::estimate
