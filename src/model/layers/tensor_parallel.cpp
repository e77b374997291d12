#include "model/layers/tensor_parallel.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "core/divide_up.h"
#include "core/error.h"
#include "kernels/linear.h"

namespace slime::model {
namespace {

using comm::RankGroup;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kForward = "a tensor-parallel layer";
constexpr const char* kBackward = "the backward of a tensor-parallel layer";

void keep(AutogradContext* ctx, RankGroup* ranks) {
  ctx->saved_data["ranks"] = reinterpret_cast<int64_t>(ranks);
}
RankGroup& kept_ranks(AutogradContext* ctx) {
  return *reinterpret_cast<RankGroup*>(ctx->saved_data["ranks"].toInt());
}

/// Equal shards of a contiguous tensor.
std::vector<comm::Range> equal_shards(const Tensor& x, const RankGroup& ranks) {
  const int64_t size = x.numel() / ranks.size();
  std::vector<comm::Range> shards;
  for (int64_t rank = 0; rank < ranks.size(); ++rank)
    shards.push_back({rank * size, (rank + 1) * size});
  return shards;
}

Tensor rows_of_rank(const Tensor& x, const RankGroup& ranks) {
  const int64_t rows = x.size(0) / ranks.size();
  return x.narrow(0, ranks.rank() * rows, rows);
}

Tensor gathered(const Tensor& x_LH, RankGroup& ranks, const char* what) {
  std::vector<int64_t> shape = x_LH.sizes().vec();
  shape[0] *= ranks.size();
  const Tensor all = at::empty(shape, x_LH.options());
  rows_of_rank(all, ranks).copy_(x_LH);
  ranks.all_gather_(all.view({-1}), equal_shards(all, ranks), what);
  return all;
}

/// The rank's rows of the sum; `x` is contiguous and overwritten.
Tensor scattered_sum(const Tensor& x, RankGroup& ranks, const char* what) {
  ranks.reduce_scatter_(x.view({-1}), equal_shards(x, ranks), what);
  return rows_of_rank(x, ranks).clone();
}

struct SumGradient : torch::autograd::Function<SumGradient> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, RankGroup* ranks) {
    keep(ctx, ranks);
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    // A copy: others may read the buffer that autograd gave.
    const Tensor grad = grads[0].clone(at::MemoryFormat::Contiguous);
    kept_ranks(ctx).all_reduce_(grad, kBackward);
    return {grad, Tensor()};
  }
};

struct SumOverRanks : torch::autograd::Function<SumOverRanks> {
  static Tensor forward(AutogradContext* ctx, const Tensor& partial, RankGroup* ranks) {
    ctx->mark_dirty({partial});
    ranks->all_reduce_(partial, kForward);
    return partial;
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    return {grads[0], Tensor()};
  }
};

/// Rows of all ranks; the gradient is summed over them, or (`sums` false) the same on each.
struct GatherRows : torch::autograd::Function<GatherRows> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_LH, RankGroup* ranks, bool sums) {
    keep(ctx, ranks);
    ctx->saved_data["sums"] = sums;
    return gathered(x_LH, *ranks, kForward);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    RankGroup& ranks = kept_ranks(ctx);
    const bool sums = ctx->saved_data["sums"].toBool();
    const Tensor grad =
        sums ? scattered_sum(grads[0].clone(at::MemoryFormat::Contiguous), ranks, kBackward)
             : rows_of_rank(grads[0], ranks).contiguous();
    return {grad, Tensor(), Tensor()};
  }
};

struct ScatterSum : torch::autograd::Function<ScatterSum> {
  static Tensor forward(AutogradContext* ctx, const Tensor& partial, RankGroup* ranks) {
    keep(ctx, ranks);
    return scattered_sum(partial.contiguous(), *ranks,
                         kForward);  // overwritten: see layer_output()
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {gathered(grads[0].contiguous(), kept_ranks(ctx), kBackward), Tensor()};
  }
};

/// A group's all-reduce, and its own kernels where it has some.
class GroupCollectives final : public kernels::RankCollectives {
 public:
  explicit GroupCollectives(RankGroup& ranks)
      : ranks_(ranks), fused_(dynamic_cast<const kernels::RankCollectives*>(&ranks)) {}

  void sum_(const Tensor& partial_TH) const override {
    fused_ != nullptr ? fused_->sum_(partial_TH) : ranks_.all_reduce_(partial_TH, kForward);
  }
  bool has_add_norm(const Tensor& residual_TH) const override {
    return fused_ != nullptr && fused_->has_add_norm(residual_TH);
  }
  Tensor add_norm_(const Tensor& residual_TH, const Tensor& partial, const Tensor& bias_H,
                   const Tensor& weight_H, double eps) const override {
    check(fused_ != nullptr, "add_norm_() is for ranks that have it");
    return fused_->add_norm_(residual_TH, partial, bias_H, weight_H, eps);
  }
  bool has_gather_columns(const Tensor& own_RV) const override {
    return fused_ != nullptr && fused_->has_gather_columns(own_RV);
  }
  Tensor gather_columns(const Tensor& own_RV, int64_t columns) const override {
    check(fused_ != nullptr, "gather_columns() is for ranks that have it");
    return fused_->gather_columns(own_RV, columns);
  }

 private:
  RankGroup& ranks_;
  const kernels::RankCollectives* fused_;  // the same group, or null
};

}  // namespace

std::unique_ptr<kernels::RankCollectives> rank_collectives_of(const TensorParallel& tp) {
  return tp.is_alone() ? nullptr : std::make_unique<GroupCollectives>(tp.ranks);
}

Tensor sum_gradient(const Tensor& x, const TensorParallel& tp) {
  return tp.is_alone() ? x : SumGradient::apply(x, &tp.ranks);
}

Tensor layer_input(const Tensor& x_LH, const TensorParallel& tp) {
  return tp.cuts_rows ? GatherRows::apply(x_LH, &tp.ranks, true) : sum_gradient(x_LH, tp);
}

Tensor layer_output(const Tensor& partial_TH, const TensorParallel& tp) {
  if (tp.is_alone()) return partial_TH;
  if (!tp.cuts_rows) return SumOverRanks::apply(partial_TH, &tp.ranks);
  const int64_t rows = partial_TH.size(0), size = tp.ranks.size();
  const int64_t padding = divide_up(rows, size) * size - rows;
  return ScatterSum::apply(
      padding > 0 ? at::constant_pad_nd(partial_TH, {0, 0, 0, padding}) : partial_TH, &tp.ranks);
}

Tensor partial_linear(const Tensor& x_TI, const Product& product, const TensorParallel& tp) {
  const kernels::Param no_bias;
  return kernels::linear(x_TI, product.weight_OI, tp.ranks.rank() == 0 ? product.bias_O : no_bias);
}

Tensor all_rows(const Tensor& x_LH, int64_t num_rows, const TensorParallel& tp) {
  return tp.cuts_rows ? first_rows(GatherRows::apply(x_LH, &tp.ranks, false), num_rows) : x_LH;
}

Tensor first_rows(const Tensor& x, int64_t num_rows) {
  return x.size(0) == num_rows ? x : x.narrow(0, 0, num_rows);
}

}  // namespace slime::model
