#include "kernels/cuda/attention/packed_attention.h"

#include "core/error.h"

/// There are no fused kernels here: training attends by plain products, prompts by plain kernels.

namespace slime::kernels::cuda {

struct PackedAttention::Graph {};
struct PackedAttention::Tables {};

PackedAttention::PackedAttention(const PlanRounding& rounding) : rounding_(rounding) {}

PackedAttention::~PackedAttention() = default;

bool PackedAttention::supports(at::ScalarType, const RotaryShape&) { return false; }

bool PackedAttention::may_have_kernels(at::ScalarType, const RotaryShape&) { return false; }

bool PackedAttention::has_kernels(at::ScalarType, const RotaryShape&, const TreeAttentionShape&) {
  return false;
}

void PackedAttention::forward(const Tensor&, const Tensor&, const AttentionLevel&,
                              const RotaryShape&, const TreeAttentionShape&, Tensor, Tensor) {
  throw BugError("packed attention is called where it has kernels");
}

void PackedAttention::backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                               const AttentionLevel&, const RotaryShape&, const TreeAttentionShape&,
                               Tensor) {
  throw BugError("packed attention is called where it has kernels");
}

}  // namespace slime::kernels::cuda
