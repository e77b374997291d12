#include "model/layers/row_shares.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/divide_up.h"

namespace slime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kJoining = "rows of a layer";
constexpr const char* kJoiningBack = "gradients of rows of a layer";

/// As elements of a flat tensor whose rows have `width` of them.
std::vector<comm::Range> shards_of(const RowShares& shares, int64_t width) {
  std::vector<comm::Range> shards;
  int64_t begin = 0;
  for (const int64_t count : shares.counts) {
    shards.push_back({begin, begin + count * width});
    begin += count * width;
  }
  return shards;
}

enum class Deal { kSlice, kGather, kSum };

Tensor dealt(const Tensor& x, const RowShares& shares, Deal deal, const char* what) {
  if (deal == Deal::kSlice) return x.narrow(0, shares.begin(), shares.own()).clone();
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = 1;
  const int64_t width =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  const std::vector<comm::Range> shards = shards_of(shares, width);
  if (deal == Deal::kSum) {
    const Tensor sum = x.clone(at::MemoryFormat::Contiguous);
    shares.ranks.reduce_scatter_(sum.view({-1}), shards, what);
    return sum.narrow(0, shares.begin(), shares.own()).clone();
  }
  shape[0] = shares.total();
  const Tensor all = at::empty(shape, x.options());
  all.narrow(0, shares.begin(), shares.own()).copy_(x);
  shares.ranks.all_gather_(all.view({-1}), shards, what);
  return all;
}

struct Dealt : torch::autograd::Function<Dealt> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const RowShares& shares, Deal there,
                        Deal back) {
    ctx->saved_data["ranks"] = reinterpret_cast<int64_t>(&shares.ranks);
    ctx->saved_data["counts"] = shares.counts;
    ctx->saved_data["back"] = static_cast<int64_t>(back);
    return dealt(x, shares, there, kJoining);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto* ranks = reinterpret_cast<comm::RankGroup*>(ctx->saved_data["ranks"].toInt());
    const RowShares shares{*ranks, ctx->saved_data["counts"].toIntVector()};
    const auto back = static_cast<Deal>(ctx->saved_data["back"].toInt());
    return {dealt(grads[0], shares, back, kJoiningBack), Tensor(), Tensor(), Tensor()};
  }
};

Tensor deal(const Tensor& x, const RowShares& shares, Deal there, Deal back) {
  return shares.ranks.is_alone() ? x : Dealt::apply(x, shares, there, back);
}

}  // namespace

int64_t RowShares::begin() const {
  return std::reduce(counts.begin(), counts.begin() + ranks.rank());
}

int64_t RowShares::total() const { return std::reduce(counts.begin(), counts.end()); }

RowShares equal_rows(int64_t num_rows, comm::RankGroup& ranks) {
  RowShares shares{ranks, {}};
  const int64_t each = divide_up(num_rows, int64_t{ranks.size()});
  for (int64_t rank = 0; rank < ranks.size(); ++rank)
    shares.counts.push_back(std::clamp<int64_t>(num_rows - rank * each, 0, each));
  return shares;
}

RowShares told_rows(int64_t own_rows, comm::RankGroup& ranks) {
  if (ranks.is_alone()) return {ranks, {own_rows}};
  const auto size = static_cast<size_t>(ranks.size());
  const Tensor counts = at::full({ranks.size()}, own_rows, at::kLong);
  ranks.all_gather_(counts, shards_of({ranks, std::vector<int64_t>(size, 1)}, 1), kJoining);
  const auto* data = counts.const_data_ptr<int64_t>();
  return {ranks, {data, data + size}};
}

Tensor own_rows(const Tensor& x_T, const RowShares& shares) {
  return deal(x_T, shares, Deal::kSlice, Deal::kGather);
}
Tensor joined_rows(const Tensor& x_L, const RowShares& shares) {
  return deal(x_L, shares, Deal::kGather, Deal::kSlice);
}
Tensor gathered_rows(const Tensor& x_L, const RowShares& shares) {
  return deal(x_L, shares, Deal::kGather, Deal::kSum);
}
Tensor summed_rows(const Tensor& partial_T, const RowShares& shares) {
  return deal(partial_T, shares, Deal::kSum, Deal::kGather);
}

}  // namespace slime::model
