#pragma once

/// Layouts for a number of devices: all that divide the model and fit, the fastest first.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/parallel_layout.h"
#include "estimate/collectives.h"
#include "estimate/model_shape.h"
#include "estimate/rates.h"
#include "estimate/stages.h"
#include "estimate/workload.h"

namespace slime::estimate {

struct Devices {
  int64_t hosts = 1;
  int64_t per_host = 8;
  int64_t count() const { return hosts * per_host; }
};

/// Sizes that the user gave; nothing: to be chosen.
struct Wanted {
  std::optional<int64_t> tp, pp, cp, ep, etp;
  bool sequence_parallel = false;
};

/// What divides what: heads by tp, experts by ep.
struct Divisible {
  int64_t heads = 1;
  int64_t key_heads = 1;  // 1: they are not divided, as of latent attention
  int64_t experts = 0;
};

struct Candidate {
  comm::ParallelLayout layout;
  std::vector<Stage> stages;
  std::vector<Collective> collectives;
  StepTime time;

  int64_t largest_stage() const;  // bytes
};

/// "tp 8, pp 4, dp 2, ep 8".
std::string to_words(const comm::ParallelLayout& layout);

/// The layers of the first and the last range where the number of layers does not divide; nothing
/// where no such numbers exist.
std::optional<comm::ParallelLayout> with_layers(comm::ParallelLayout layout, int64_t num_layers);

/// Why a run refuses a layout of its trainers; empty: it does not.
using WhyNoLayout = std::function<std::string(const comm::ParallelLayout&)>;

/// Those whose ranks fit into a device, the fastest first; where none fits, all, the smallest
/// first. Throws ConfigError where what was asked for divides nothing, with what would, or is refused.
std::vector<Candidate> candidates(const ModelShape& shape, const Divisible& divisible,
                                  const Workload& workload, const Devices& devices,
                                  const Wanted& wanted, const Rates& rates,
                                  const WhyNoLayout& why_not = {});

}  // namespace slime::estimate
