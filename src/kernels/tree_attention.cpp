#include "kernels/tree_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/trace.h"

namespace slime::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<int64_t> to_numbers(const std::vector<Segment>& segments) {
  std::vector<int64_t> numbers;
  for (const Segment& segment : segments)
    numbers.insert(numbers.end(),
                   {segment.begin, segment.end, segment.parent, int64_t{segment.has_queries}});
  return numbers;
}

std::vector<Segment> to_segments(const std::vector<int64_t>& numbers) {
  std::vector<Segment> segments;
  for (size_t i = 0; i < numbers.size(); i += 4) {
    segments.push_back(
        {numbers[i], numbers[i + 1], static_cast<int32_t>(numbers[i + 2]), numbers[i + 3] != 0});
  }
  return segments;
}

void clear_rows_without_queries(const Tensor& x_TE, const std::vector<Segment>& segments) {
  for (const Segment& segment : segments) {
    if (!segment.has_queries) x_TE.narrow(0, segment.begin, segment.end - segment.begin).zero_();
  }
}

/// Attention with its statistics. A sink makes the sum of the softmax larger, and everything else
/// smaller by the same share.
struct Attended {
  Tensor y_TC, logsumexp_TN;
};
Attended attended(const Tensor& heads_TE, const std::vector<Segment>& segments,
                  const RotaryShape& heads, const TreeAttentionShape& shape,
                  const Tensor& sinks_N) {
  Attended out;
  const Device& device = kernels_for(heads_TE);
  if (shape.in_pages) {
    out.y_TC =
        device.tree_attention_in_pages(heads_TE, segments, heads, shape, sinks_N, out.logsumexp_TN);
    clear_rows_without_queries(out.y_TC, segments);
    clear_rows_without_queries(out.logsumexp_TN, segments);
    return out;
  }
  out.y_TC = device.tree_attention(heads_TE, segments, heads, shape, out.logsumexp_TN);
  clear_rows_without_queries(out.y_TC, segments);
  clear_rows_without_queries(out.logsumexp_TN, segments);
  if (!sinks_N.defined()) return out;
  const Tensor all_TN = at::logaddexp(out.logsumexp_TN, sinks_N.to(out.logsumexp_TN.scalar_type()));
  const Tensor share_TN1 = (out.logsumexp_TN - all_TN).exp().unsqueeze(-1);
  const Tensor y_TND = out.y_TC.view({out.y_TC.size(0), heads.num_heads, heads.head_dim});
  return {(y_TND * share_TN1).to(out.y_TC.scalar_type()).view(out.y_TC.sizes()), all_TN};
}

struct TreeAttentionFunction : torch::autograd::Function<TreeAttentionFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& heads_TE,
                        const std::vector<Segment>& segments, const RotaryShape& heads,
                        const TreeAttentionShape& shape, const Param& sinks) {
    const auto [y_TC, logsumexp_TN] = attended(heads_TE, segments, heads, shape, sinks.value);
    ctx->save_for_backward({heads_TE, y_TC, logsumexp_TN});
    ctx->saved_data["segments"] = to_numbers(segments);
    ctx->saved_data["sizes"] =
        std::vector<int64_t>{heads.num_heads, heads.num_kv_heads, heads.head_dim, shape.window,
                             static_cast<int64_t>(shape.ordered_backward)};
    ctx->saved_data["scale"] = shape.scale;
    ctx->saved_data["cap"] = shape.cap;
    ctx->saved_data["sinks"] = sinks.value;
    ctx->saved_data["sinks_grad"] = sinks.grad;
    return y_TC;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto sizes = ctx->saved_data["sizes"].toIntVector();
    const RotaryShape heads{sizes[0], sizes[1], sizes[2], 0};
    const TreeAttentionShape shape{ctx->saved_data["scale"].toDouble(), sizes[3],
                                   ctx->saved_data["cap"].toDouble(), false, sizes[4] != 0};
    const auto segments = to_segments(ctx->saved_data["segments"].toIntVector());
    const Tensor dy_TC = grads[0].contiguous();
    // The statistics hold the sinks' share, so the scores' gradients are right as they are.
    const Tensor dheads_TE = kernels_for(dy_TC).tree_attention_backward(
        dy_TC, saved[1], saved[0], saved[2], segments, heads, shape);
    clear_rows_without_queries(dheads_TE.narrow(1, 0, heads.num_heads * heads.head_dim), segments);
    if (const Tensor grad_N = ctx->saved_data["sinks_grad"].toTensor(); grad_N.defined()) {
      const Tensor share_TN = (ctx->saved_data["sinks"].toTensor() - saved[2]).exp();
      const Tensor seen_TN = (dy_TC.to(saved[2].scalar_type()) * saved[1])
                                 .view({dy_TC.size(0), heads.num_heads, heads.head_dim})
                                 .sum(-1);
      grad_N.sub_((share_TN * seen_TN).sum(0));
    }
    return {dheads_TE, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor tree_attention(const Tensor& heads_TE, const std::vector<Segment>& segments,
                      const RotaryShape& heads, const TreeAttentionShape& shape,
                      const Param& sinks_N) {
  const TraceRange range("tree_attention");
  if (at::GradMode::is_enabled() && heads_TE.requires_grad()) {
    return TreeAttentionFunction::apply(heads_TE, segments, heads, shape, sinks_N);
  }
  return attended(heads_TE, segments, heads, shape, sinks_N.value).y_TC;
}

}  // namespace slime::kernels
