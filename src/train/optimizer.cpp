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
    const bool is_first_of_tp = weight.slice.dim >= 0 || mesh.at().tp == 0;
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
    : weights_(weights),
      config_(config),
      mesh_(mesh),
      reduction_(weights, mesh),
      ranges_(ranges_of(weights, frozen, shard())),
      counted_(counted_ranges(weights, shard(), mesh)) {
  weights_.enable_grad();
  const at::NoGradGuard no_grad;
  const auto precision = weights_.grad().scalar_type();
  // The same precision: the same memory.
  const Tensor own_P = own(weights_.flat());
  master_ = own_P.to(precision);
  const at::Device device = own_P.device();
  const bool on_host = config.on_host && !device.is_cpu();
  if (on_host && has_master()) master_ = master_.cpu();
  const auto options = on_host ? master_.options().device(at::kCPU) : master_.options();
  first_moment_ = at::zeros(master_.sizes(), options);
  second_moment_ = at::zeros(master_.sizes(), options);
  if (on_host) {
    streamed_ = std::make_unique<StreamedAdam>(device, has_master() ? master_ : Tensor(),
                                               first_moment_, second_moment_);
  }
}

Tensor Optimizer::own(const Tensor& buffer_N) const {
  return buffer_N.narrow(0, shard().begin, shard().size());
}

bool Optimizer::has_master() const {
  return master_.scalar_type() != weights_.flat().scalar_type();
}

double Optimizer::gradient_squares() {
  const Tensor own_P = own(weights_.grad());
  double squares = 0;
  for (const comm::Range& range : counted_)
    squares += kernels::sum_of_squares(own_P.narrow(0, range.begin, range.size()));
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
  if (streamed_ != nullptr) {
    streamed_->step(own(weights_.flat()), own(weights_.grad()), ranges_, step);
  } else {
    kernels::adamw_(own(weights_.flat()), master_, first_moment_, second_moment_,
                    own(weights_.grad()), ranges_, step);
  }
  mesh_.dp_cp().all_gather_(weights_.flat(), shards(), "handing out the new weights");
}

void Optimizer::reset() {
  if (streamed_ != nullptr) streamed_->wait();
  first_moment_.zero_();
  second_moment_.zero_();
  num_steps_ = 0;
}

}  // namespace slime::train
