// The products on both sides of a layer whose ranks share rows, with the messages between them.
//
// A rank's own rows need no message, so they are computed while those of the others are on their way:
//
//   gathered_linear  forward   gather x of the others      | y of own rows, then of the others'
//                    backward  dx, then its scattered sum  | weight's gradient
//   summed_linear    forward   y of the others' rows, then its exchange | y of own rows, then the sum
//                    backward  gather dy of the others     | dx of own rows, then of the others'
//
// Rows that are padding (tensor_parallel.h) are not multiplied.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/divide_up.h"
#include "kernels/adapters.h"
#include "kernels/device.h"
#include "kernels/kept_param.h"
#include "kernels/linear.h"
#include "kernels/trace.h"
#include "model/layers/tensor_parallel.h"

namespace slime::model {
namespace {

using comm::Range;
using kernels::Device;
using kernels::MatrixParam;
using kernels::Param;
using kernels::RoomForMessages;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kProduct = "a tensor-parallel layer";
constexpr const char* kProductBackward = "the backward of a tensor-parallel layer";

/// T rows dealt to the ranks in shares of L; the last ones may be short or empty.
struct DealtRows {
  DealtRows(int64_t num_rows, const comm::RankGroup& ranks)
      : rows(num_rows), share(divide_up(num_rows, int64_t{ranks.size()})), rank(ranks.rank()) {}

  Range of(int64_t r) const { return {std::min(r * share, rows), std::min((r + 1) * share, rows)}; }
  Range own() const { return of(rank); }
  /// Before and behind the own ones.
  std::array<Range, 2> others() const { return {Range{0, own().begin}, Range{own().end, rows}}; }

  int64_t rows, share;
  int64_t rank;
};

Tensor rows_in(const Tensor& x, const Range& rows) { return x.narrow(0, rows.begin, rows.size()); }

Tensor empty_rows(int64_t rows, int64_t size, const Tensor& like) {
  return at::empty({rows, size}, like.options());
}

/// Elements of each rank's share, padding included.
std::vector<Range> padded_shards(const DealtRows& shares, int64_t ranks, int64_t size) {
  std::vector<Range> shards;
  for (int64_t r = 0; r < ranks; ++r)
    shards.push_back({r * shares.share * size, (r + 1) * shares.share * size});
  return shards;
}

/// Begins to gather rows of all ranks, [ranks x L, H]; they are there behind messages.join().
Tensor begin_gather(const Tensor& x_LH, const DealtRows& shares, const TensorParallel& tp,
                    const char* what) {
  const int64_t ranks = tp.ranks.size(), size = x_LH.size(1);
  const Tensor all = empty_rows(ranks * shares.share, size, x_LH);
  tp.messages.run(x_LH, [&] {
    all.narrow(0, shares.rank * shares.share, shares.share).copy_(x_LH);
    tp.ranks.all_gather_(all.view({-1}), padded_shards(shares, ranks, size), what);
  });
  return all;
}

struct Gathered {
  Tensor y_TO;
  Tensor x_TH;
};

Gathered gathered_product(const Tensor& x_LH, int64_t num_rows, const MatrixParam& weight,
                          const Param& bias, const TensorParallel& tp) {
  const Device& device = kernels::kernels_for(x_LH);
  const DealtRows shares(num_rows, tp.ranks);
  const Tensor y_TO = empty_rows(num_rows, weight.matrix.outputs(), x_LH);
  const auto multiply = [&](const Range& rows, const Tensor& x) {
    if (rows.size() > 0)
      kernels::adapted_linear_into(rows_in(y_TO, rows), x, weight.matrix, bias.value);
  };
  const Tensor all = begin_gather(x_LH, shares, tp, kProduct);
  {
    const RoomForMessages room(device, comm::kProcessorsOfMessages);
    multiply(shares.own(), x_LH.narrow(0, 0, shares.own().size()));
  }
  tp.messages.join();
  for (const Range& rows : shares.others()) multiply(rows, rows_in(all, rows));
  return {y_TO, all.narrow(0, 0, num_rows)};
}

void keep_product(AutogradContext* ctx, const MatrixParam& weight, const Param& bias,
                  const TensorParallel& tp) {
  kernels::keep(ctx, "weight", weight);
  ctx->saved_data["bias_grad"] = bias.grad;
  ctx->saved_data["tp"] = reinterpret_cast<int64_t>(&tp);
}
const TensorParallel& ranks_of_product(AutogradContext* ctx) {
  return *reinterpret_cast<const TensorParallel*>(ctx->saved_data["tp"].toInt());
}

void add_parameter_gradients(AutogradContext* ctx, const Device& device, const Tensor& dy_TO,
                             const Tensor& x_TI) {
  const Tensor bias_grad = ctx->saved_data["bias_grad"].toTensor();
  kernels::add_adapted_weight_grad_(kernels::kept_matrix_param(ctx, "weight"), dy_TO, x_TI);
  if (bias_grad.defined()) device.add_bias_grad_(bias_grad, dy_TO);
}

struct GatheredLinear : torch::autograd::Function<GatheredLinear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_LH, int64_t num_rows,
                        const MatrixParam& weight, const Param& bias, const TensorParallel* tp) {
    const Gathered gathered = gathered_product(x_LH, num_rows, weight, bias, *tp);
    ctx->saved_data["x"] = gathered.x_TH;
    keep_product(ctx, weight, bias, *tp);
    return gathered.y_TO;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const TensorParallel& tp = ranks_of_product(ctx);
    const Tensor x_TH = ctx->saved_data["x"].toTensor(), dy_TO = grads[0].contiguous();
    const Device& device = kernels::kernels_for(dy_TO);
    const int64_t rows = x_TH.size(0), size = x_TH.size(1), ranks = tp.ranks.size();
    const DealtRows shares(rows, tp.ranks);
    const Tensor dx = empty_rows(ranks * shares.share, size, x_TH);
    kernels::adapted_input_grad_into(dx.narrow(0, 0, rows), dy_TO,
                                     kernels::kept_matrix(ctx, "weight"));
    if (dx.size(0) > rows) dx.narrow(0, rows, dx.size(0) - rows).zero_();
    tp.messages.run(dx, [&] {
      tp.ranks.reduce_scatter_(dx.view({-1}), padded_shards(shares, ranks, size), kProductBackward);
    });
    {
      const RoomForMessages room(device, comm::kProcessorsOfMessages);
      add_parameter_gradients(ctx, device, dy_TO, x_TH);
    }
    tp.messages.join();
    const Tensor own = dx.narrow(0, shares.rank * shares.share, shares.share);
    return {own, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

/// As kernels::linear() of sum_gradient(x).
struct SharedLinear : torch::autograd::Function<SharedLinear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TH, const MatrixParam& weight,
                        const Param& bias, const TensorParallel* tp) {
    ctx->save_for_backward({x_TH});
    keep_product(ctx, weight, bias, *tp);
    return kernels::adapted_linear(x_TH, weight.matrix, bias.value);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const TensorParallel& tp = ranks_of_product(ctx);
    const Tensor x_TH = ctx->get_saved_variables()[0], dy_TO = grads[0].contiguous();
    const Device& device = kernels::kernels_for(dy_TO);
    const Tensor dx_TH = kernels::adapted_input_grad(dy_TO, kernels::kept_matrix(ctx, "weight"));
    tp.messages.run(dx_TH, [&] { tp.ranks.all_reduce_(dx_TH, kProductBackward); });
    {
      const RoomForMessages room(device, comm::kProcessorsOfMessages);
      add_parameter_gradients(ctx, device, dy_TO, x_TH);
    }
    tp.messages.join();
    return {dx_TH, Tensor(), Tensor(), Tensor()};
  }
};

/// The rank's rows of the sum, [L, O].
Tensor summed_product(const Tensor& x_TI, const MatrixParam& weight, const Tensor& bias_O,
                      const TensorParallel& tp) {
  using enum comm::Message::Direction;
  const Device& device = kernels::kernels_for(x_TI);
  const DealtRows shares(x_TI.size(0), tp.ranks);
  const Range own_rows = shares.own();
  const int64_t size = weight.matrix.outputs();
  std::vector<comm::Message> messages;
  const auto [before, behind] = shares.others();
  const auto multiply = [&](const Range& rows) {
    return kernels::adapted_linear(rows_in(x_TI, rows), weight.matrix, bias_O);
  };
  const Tensor of_before = before.size() > 0 ? multiply(before) : Tensor(),
               of_behind = behind.size() > 0 ? multiply(behind) : Tensor();
  std::vector<Tensor> parts(static_cast<std::size_t>(tp.ranks.size()));
  for (int r = 0; r < tp.ranks.size(); ++r) {
    if (r == tp.ranks.rank()) continue;
    const Range rows = shares.of(r);
    Tensor& part = parts[static_cast<std::size_t>(r)] = empty_rows(own_rows.size(), size, x_TI);
    if (rows.size() > 0) {
      const bool is_before = r < tp.ranks.rank();
      const int64_t begin = is_before ? rows.begin : rows.begin - behind.begin;
      messages.push_back(
          {kSend, r, (is_before ? of_before : of_behind).narrow(0, begin, rows.size())});
    }
    messages.push_back({kReceive, r, part});
  }
  tp.messages.run(x_TI, [&] { tp.ranks.exchange(messages, "reduce-scatter", kProduct); });
  if (own_rows.size() > 0) {
    const RoomForMessages room(device, comm::kProcessorsOfMessages);
    parts[static_cast<std::size_t>(shares.rank)] = multiply(own_rows);
  }
  tp.messages.join();
  Tensor sum = own_rows.size() > 0 ? parts[0] : empty_rows(0, size, x_TI);
  for (std::size_t r = 1; r < parts.size() && own_rows.size() > 0; ++r)
    sum = device.sum(sum, parts[r]);
  const int64_t padding = shares.share - own_rows.size();
  return padding > 0 ? at::constant_pad_nd(sum, {0, 0, 0, padding}) : sum;
}

struct SummedLinear : torch::autograd::Function<SummedLinear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TI, const MatrixParam& weight,
                        const Param& bias, const TensorParallel* tp) {
    ctx->save_for_backward({x_TI});
    keep_product(ctx, weight, bias, *tp);
    return summed_product(x_TI, weight, bias.value, *tp);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const TensorParallel& tp = ranks_of_product(ctx);
    const Tensor x_TI = ctx->get_saved_variables()[0], dy_LO = grads[0].contiguous();
    const kernels::Matrix weight_OI = kernels::kept_matrix(ctx, "weight");
    const Device& device = kernels::kernels_for(dy_LO);
    const DealtRows shares(x_TI.size(0), tp.ranks);
    const Tensor dx_TI = empty_rows(shares.rows, x_TI.size(1), x_TI);
    const auto multiply = [&](const Range& rows, const Tensor& dy) {
      if (rows.size() > 0) kernels::adapted_input_grad_into(rows_in(dx_TI, rows), dy, weight_OI);
    };
    const Tensor all = begin_gather(dy_LO, shares, tp, kProductBackward);
    {
      const RoomForMessages room(device, comm::kProcessorsOfMessages);
      multiply(shares.own(), dy_LO.narrow(0, 0, shares.own().size()));
    }
    tp.messages.join();
    for (const Range& rows : shares.others()) multiply(rows, rows_in(all, rows));
    add_parameter_gradients(ctx, device, all.narrow(0, 0, shares.rows), x_TI);
    return {dx_TI, Tensor(), Tensor(), Tensor()};
  }
};

bool is_differentiated(const Tensor& x) { return at::GradMode::is_enabled() && x.requires_grad(); }

}  // namespace

Tensor gathered_linear(const Tensor& x_LH, int64_t num_rows, const Product& product,
                       const TensorParallel& tp) {
  const MatrixParam& weight = product.weight_OI;
  const Param& bias = product.bias_O;
  if (!tp.cuts_rows) {
    if (tp.is_alone() || !is_differentiated(x_LH)) return kernels::linear(x_LH, weight, bias);
    return SharedLinear::apply(x_LH, weight, bias, &tp);
  }
  const kernels::TraceRange range("gathered_linear");
  const Tensor x = x_LH.contiguous();
  if (is_differentiated(x)) return GatheredLinear::apply(x, num_rows, weight, bias, &tp);
  return gathered_product(x, num_rows, weight, bias, tp).y_TO;
}

Tensor summed_linear(const Tensor& x_TI, const Product& product, const TensorParallel& tp) {
  if (!tp.cuts_rows) return layer_output(partial_linear(x_TI, product, tp), tp);
  const Param bias = tp.ranks.rank() == 0 ? product.bias_O : Param();
  const kernels::TraceRange range("summed_linear");
  const Tensor x = x_TI.contiguous();
  if (is_differentiated(x)) return SummedLinear::apply(x, product.weight_OI, bias, &tp);
  return summed_product(x, product.weight_OI, bias.value, tp);
}

}  // namespace slime::model
