#include "estimate/collectives.h"

#include <algorithm>

#include "estimate/stages.h"
#include "model/pipeline_layers.h"
#include "train/flops.h"

namespace slime::estimate {
namespace {

/// Of a rank of the stage with most layers, in a step.
struct Share {
  double layers = 0, expert_layers = 0;
  double rows = 0;                // of its pipeline and context-parallel part
  double cache_numbers = 0;       // keys and values of a row, all its layers
  double dispatched = 0;          // numbers of a row to experts, all its layers
  double dense = 0, experts = 0;  // numbers that are trained
  double bytes_of_number = kElementBytes;
  double micro_batches = 0;
  /// Forward, backward, and the forward pass once more where it is computed again.
  double passes_forward = 1;
};

Share share_of(const ModelShape& shape, const comm::ParallelLayout& layout,
               const Workload& workload) {
  Share most;
  const auto num_layers = static_cast<int64_t>(shape.blocks.size());
  for (int stage = 0; stage < layout.pp; ++stage) {
    const TrainerRank rank = rank_of(shape, layout, workload, stage);
    Share share{.dense = static_cast<double>(rank.dense),
                .experts = static_cast<double>(rank.experts)};
    if (shape.trains_adapters) {
      share.dense = static_cast<double>(rank.adapters);
      share.experts = static_cast<double>(rank.expert_adapters);
      share.bytes_of_number = 4;
    }
    for (const model::LayerRange& range : model::layers_of_stage(layout, stage, num_layers)) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        const BlockShape& block = shape.blocks[static_cast<size_t>(i)];
        ++share.layers;
        share.expert_layers += block.experts > 0 ? 1 : 0;
        share.cache_numbers += static_cast<double>(block.cache.numbers_per_token());
        share.dispatched += static_cast<double>(block.dispatched_numbers);
      }
    }
    if (share.layers > most.layers) most = share;
  }
  most.rows = static_cast<double>(workload.rows()) / (layout.dp * layout.cp);
  most.micro_batches = static_cast<double>(num_micro_batches(layout, workload));
  most.passes_forward = workload.recompute == model::Recompute::kFull ? 2 : 1;
  return most;
}

}  // namespace

bool crosses_hosts(const comm::ParallelLayout& layout, comm::Axis axis, int64_t devices_per_host) {
  const std::vector<int> members = comm::members_of(layout, axis, 0);
  return members.back() / devices_per_host != members.front() / devices_per_host;
}

std::vector<Collective> collectives_of_step(const ModelShape& shape,
                                            const comm::ParallelLayout& layout,
                                            const Workload& workload, const Rates& rates,
                                            int64_t devices_per_host) {
  const Share share = share_of(shape, layout, workload);
  const double hidden = static_cast<double>(shape.hidden);
  std::vector<Collective> all;
  /// `bytes`: the whole tensor of a gather or a scatter, of which a rank sends all but its own part.
  const auto add = [&](std::string name, comm::Axis axis, double calls, double bytes) {
    const auto ranks = static_cast<int64_t>(comm::members_of(layout, axis, 0).size());
    if (ranks == 1 || bytes == 0) return;
    Collective one{.name = std::move(name), .axis = comm::name_of(axis), .ranks = ranks};
    one.crosses_hosts = crosses_hosts(layout, axis, devices_per_host);
    one.calls = calls;
    one.bytes = bytes * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    one.seconds = one.bytes / (one.crosses_hosts ? rates.network : rates.link).per_second;
    all.push_back(std::move(one));
  };
  const double forward = share.passes_forward, both = forward + 1;
  const double stream = share.rows * hidden * kElementBytes;
  // Two gathers and two scatters of the stream in each pass through a layer; sums of the whole
  // stream, without sequence parallelism, are as many bytes.
  add("residual stream, gathered and scattered", comm::Axis::kTp,
      4 * both * share.layers * share.micro_batches, 4 * both * share.layers * stream);
  const double cache = share.cache_numbers / layout.tp * share.rows * layout.cp * kElementBytes;
  add("keys and values gathered, their gradients scattered", comm::Axis::kCp,
      both * share.layers * share.micro_batches, both * cache);
  // Rows go to experts and come back. A tensor-parallel rank sends its own rows.
  const double visits = share.dispatched / layout.tp * share.rows * kElementBytes;
  add("rows to experts and back", comm::Axis::kEp,
      2 * both * share.expert_layers * share.micro_batches, 2 * both * visits);
  add("rows of experts, gathered and scattered", comm::Axis::kEtp,
      2 * both * share.expert_layers * share.micro_batches, 2 * both * visits * layout.etp);
  if (layout.pp > 1) {
    const double rows = layout.sequence_parallel ? share.rows / layout.tp : share.rows;
    Collective one{.name = "streams between stages",
                   .axis = comm::name_of(comm::Axis::kPp),
                   .ranks = layout.pp};
    one.crosses_hosts = crosses_hosts(layout, comm::Axis::kPp, devices_per_host);
    one.calls = 2 * share.micro_batches * layout.chunks;
    one.bytes = 2 * rows * hidden * kElementBytes * layout.chunks;
    one.seconds = one.bytes / (one.crosses_hosts ? rates.network : rates.link).per_second;
    all.push_back(std::move(one));
  }
  add("gradients scattered (float32)", comm::Axis::kDpCp, 1, 4 * share.dense);
  add("weights gathered", comm::Axis::kDpCp, 1, share.bytes_of_number * share.dense);
  add("experts' gradients scattered (float32)", comm::Axis::kEdp, 1, 4 * share.experts);
  add("experts' weights gathered", comm::Axis::kEdp, 1, share.bytes_of_number * share.experts);
  return all;
}

StepTime step_time(const ModelShape& shape, const comm::ParallelLayout& layout,
                   const Workload& workload, const Rates& rates,
                   const std::vector<Collective>& collectives) {
  const auto rows = static_cast<double>(workload.rows());
  const double pairs = workload.pairs();
  // Beside adapters no gradients of the model's own matrices are computed.
  const double backward = shape.trains_adapters ? 1 : 2;
  const double passes = (workload.recompute == model::Recompute::kFull ? 2 : 1) + backward;
  StepTime time;
  double slowest = 0;
  for (int stage = 0; stage < layout.pp; ++stage) {
    double dense = 0, experts = 0;
    const auto ranges =
        model::layers_of_stage(layout, stage, static_cast<int64_t>(shape.blocks.size()));
    for (const model::LayerRange& range : ranges) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        const BlockShape& block = shape.blocks[static_cast<size_t>(i)];
        dense += (static_cast<double>(block.costs.flops_per_token) - block.expert_flops) * rows +
                 static_cast<double>(block.costs.flops_per_pair) * pairs;
        experts += block.expert_flops * rows;
      }
    }
    if (stage == layout.pp - 1) dense += train::head_flops(shape.hidden, shape.vocab) * rows;
    time.flops += (1 + backward) * (dense + experts);
    slowest = std::max(slowest, passes * (dense / rates.products.per_second +
                                          experts / rates.expert_products.per_second));
  }
  const double ranks_of_a_stage = static_cast<double>(layout.dp) * layout.cp * layout.tp;
  time.computing = slowest / ranks_of_a_stage;
  time.bubble = time.computing * (layout.pp - 1) /
                (static_cast<double>(num_micro_batches(layout, workload)) * layout.chunks);
  for (const Collective& one : collectives) time.collectives += one.seconds;
  return time;
}

}  // namespace slime::estimate
