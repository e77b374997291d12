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
    numbers.insert(numbers.end(), {segment.begin, segment.end, segment.parent});
  return numbers;
}

std::vector<Segment> to_segments(const std::vector<int64_t>& numbers) {
  std::vector<Segment> segments;
  for (size_t i = 0; i < numbers.size(); i += 3) {
    segments.push_back({numbers[i], numbers[i + 1], static_cast<int32_t>(numbers[i + 2])});
  }
  return segments;
}

struct TreeAttentionFunction : torch::autograd::Function<TreeAttentionFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& heads_TE,
                        const std::vector<Segment>& segments, const RotaryShape& heads,
                        const TreeAttentionShape& shape) {
    Tensor logsumexp_TN;
    const Tensor y_TC =
        kernels_for(heads_TE).tree_attention(heads_TE, segments, heads, shape, logsumexp_TN);
    ctx->save_for_backward({heads_TE, y_TC, logsumexp_TN});
    ctx->saved_data["segments"] = to_numbers(segments);
    ctx->saved_data["sizes"] =
        std::vector<int64_t>{heads.num_heads, heads.num_kv_heads, heads.head_dim, shape.window};
    ctx->saved_data["scale"] = shape.scale;
    return y_TC;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto sizes = ctx->saved_data["sizes"].toIntVector();
    const RotaryShape heads{sizes[0], sizes[1], sizes[2], 0};
    const TreeAttentionShape shape{ctx->saved_data["scale"].toDouble(), sizes[3]};
    const auto segments = to_segments(ctx->saved_data["segments"].toIntVector());
    return {kernels_for(grads[0]).tree_attention_backward(grads[0].contiguous(), saved[1], saved[0],
                                                          saved[2], segments, heads, shape),
            Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor tree_attention(const Tensor& heads_TE, const std::vector<Segment>& segments,
                      const RotaryShape& heads, const TreeAttentionShape& shape) {
  const TraceRange range("tree_attention");
  if (at::GradMode::is_enabled() && heads_TE.requires_grad()) {
    return TreeAttentionFunction::apply(heads_TE, segments, heads, shape);
  }
  Tensor logsumexp_TN;
  return kernels_for(heads_TE).tree_attention(heads_TE, segments, heads, shape, logsumexp_TN);
}

}  // namespace slime::kernels
