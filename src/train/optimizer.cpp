#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "comm/ordered_sum.h"
#include "kernels/trace.h"

namespace slime::train {
namespace {

/// The named tensors as ranges of the shard, neighbours of one kind joined. Padding stays out and
/// stays zero.
std::vector<kernels::AdamRange> ranges_of(const model::Weights& weights,
                                          const std::vector<std::string>& frozen,
                                          const comm::Range& shard) {
  std::vector<kernels::AdamRange> ranges;
  for (const model::NamedWeight& weight : weights.tensors()) {
    if (std::find(frozen.begin(), frozen.end(), weight.name) != frozen.end()) continue;
    int64_t size = 1;
    for (const int64_t extent : weight.shape) size *= extent;
    const int64_t begin = std::max(weight.offset, shard.begin);
    const int64_t end = std::min(weight.offset + size, shard.end);
    if (begin < end) ranges.push_back({begin - shard.begin, end - shard.begin, weight.decays});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<kernels::AdamRange> joined;
  for (const kernels::AdamRange& range : ranges) {
    if (!joined.empty() && joined.back().end == range.begin &&
        joined.back().decays == range.decays) {
      joined.back().end = range.end;
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

/// What this rank counts of its shard in sums over the whole model. Of weights that several ranks hold
/// the first counts them.
std::vector<comm::Range> counted_ranges(const model::Weights& weights, const comm::Range& shard,
                                        const comm::Mesh& mesh) {
  const auto is_counted = [&](const model::NamedWeight& weight) {
    const bool is_first_of_tp =
        !weight.slices.is_whole() || weight.is_of_own_expert || mesh.at().tp == 0;
    return is_first_of_tp && (!weight.is_on_two_stages || mesh.at().pp == 0);
  };
  if (std::ranges::all_of(weights.tensors(), is_counted)) return {{0, shard.size()}};
  std::vector<comm::Range> ranges;
  for (const model::NamedWeight& weight : weights.tensors()) {
    const int64_t begin = std::max(weight.offset, shard.begin);
    const int64_t end = std::min(weight.offset + c10::multiply_integers(weight.shape), shard.end);
    if (is_counted(weight) && begin < end)
      ranges.push_back({begin - shard.begin, end - shard.begin});
  }
  return ranges;
}

}  // namespace

Optimizer::Optimizer(model::Weights& weights, const AdamConfig& config,
                     const std::vector<std::string>& frozen, const comm::Mesh& mesh)
    : weights_(weights), config_(config), mesh_(mesh), reduction_(weights, mesh) {
  weights_.enable_grad();
  const at::NoGradGuard no_grad;
  for (const GradientReduction::Part& part : reduction_.parts()) own(part.own(), frozen);
}

void Optimizer::own(const comm::Range& shard, const std::vector<std::string>& frozen) {
  OwnedShard own{.elements = shard};
  Update update{nullptr, ranges_of(weights_, frozen, shard),
                counted_ranges(weights_, shard, mesh_)};
  const auto precision = weights_.grad().scalar_type();
  // The same precision: the same memory.
  const Tensor own_P = weights_.flat().narrow(0, shard.begin, shard.size());
  own.master = own_P.to(precision);
  const at::Device device = own_P.device();
  const bool on_host = config_.on_host && !device.is_cpu();
  const bool has_own_master = precision != own_P.scalar_type();
  if (on_host && has_own_master) own.master = own.master.cpu();
  const auto options = on_host ? own.master.options().device(at::kCPU) : own.master.options();
  own.first_moment = at::zeros(own.master.sizes(), options);
  own.second_moment = at::zeros(own.master.sizes(), options);
  if (on_host) {
    update.streamed = std::make_unique<StreamedAdam>(device, has_own_master ? own.master : Tensor(),
                                                     own.first_moment, own.second_moment);
  }
  owned_.push_back(std::move(own));
  updates_.push_back(std::move(update));
}

std::vector<Tensor> Optimizer::own_shards_of(const Tensor& buffer_N) const {
  std::vector<Tensor> shards;
  for (const OwnedShard& own : owned_)
    shards.push_back(buffer_N.narrow(0, own.elements.begin, own.elements.size()));
  return shards;
}

bool Optimizer::has_master() const {
  return owned_.front().master.scalar_type() != weights_.flat().scalar_type();
}

double Optimizer::gradient_squares() {
  double squares = 0;
  const std::vector<Tensor> grads = own_shards_of(weights_.grad());
  for (std::size_t i = 0; i < grads.size(); ++i) {
    for (const comm::Range& range : updates_[i].counted)
      squares += kernels::sum_of_squares(grads[i].narrow(0, range.begin, range.size()));
  }
  return sum(mesh_.world(), squares, "the gradient norm");
}

void Optimizer::step(double lr, double weight_decay, double grad_scale) {
  const kernels::TraceRange range("optimizer");
  ++num_steps_;
  const kernels::AdamStep step{.lr = lr,
                               .beta1 = config_.beta1,
                               .beta2 = config_.beta2,
                               .eps = config_.eps,
                               .weight_decay = weight_decay,
                               .grad_scale = grad_scale,
                               .step = num_steps_};
  const std::vector<Tensor> weights = own_shards_of(weights_.flat());
  const std::vector<Tensor> grads = own_shards_of(weights_.grad());
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    const OwnedShard& own = owned_[i];
    const Update& update = updates_[i];
    if (update.streamed != nullptr) {
      update.streamed->step(weights[i], grads[i], update.ranges, step);
    } else {
      kernels::adamw_(weights[i], own.master, own.first_moment, own.second_moment, grads[i],
                      update.ranges, step);
    }
  }
  for (const GradientReduction::Part& part : reduction_.parts())
    part.ranks.all_gather_(weights_.flat(), part.shards, "handing out the new weights");
}

void Optimizer::wait() {
  for (const Update& update : updates_)
    if (update.streamed != nullptr) update.streamed->wait();
}

void Optimizer::reset() {
  wait();
  for (OwnedShard& own : owned_) {
    own.first_moment.zero_();
    own.second_moment.zero_();
  }
  num_steps_ = 0;
}

void Optimizer::begin_again() {
  reset();
  const at::NoGradGuard no_grad;
  if (!has_master()) return;
  for (OwnedShard& own : owned_)
    own.master.copy_(weights_.flat().narrow(0, own.elements.begin, own.elements.size()));
}

void Optimizer::set_rates(double beta1, double beta2, double eps) {
  config_.beta1 = beta1;
  config_.beta2 = beta2;
  config_.eps = eps;
}

}  // namespace slime::train
