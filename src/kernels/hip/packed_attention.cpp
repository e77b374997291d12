#include "kernels/cuda/attention/packed_attention.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstdio>

#include "core/error.h"
#include "kernels/hip/fused_attention.h"

/// LibTorch's fused attention stands for cuDNN's in training, where it was tried on this device and found right. It has neither
/// windows nor caps: those layers attend by plain products. Prompts of engines attend by kernels of our own.

namespace slime::kernels::cuda {

struct PackedAttention::Graph {};
struct PackedAttention::Tables {};

namespace {

hip::FusedAttention& fused(void* handle) { return *static_cast<hip::FusedAttention*>(handle); }

}  // namespace

PackedAttention::PackedAttention(const PlanRounding& rounding) : rounding_(rounding) {
  handle_ = new hip::FusedAttention(
      hip::fused_functions(at::kCUDA),
      [](const std::string& sentence) { fmt::print(stderr, "slime: {}\n", sentence); });
}

PackedAttention::~PackedAttention() { delete &fused(handle_); }

/// Without trying it: nothing.
bool PackedAttention::supports(at::ScalarType, const RotaryShape&) { return false; }

bool PackedAttention::may_have_kernels(at::ScalarType type, const RotaryShape& heads) {
  return hip::FusedAttention::may_have(type, heads);
}

bool PackedAttention::has_kernels(at::ScalarType type, const RotaryShape& heads,
                                  const TreeAttentionShape& shape) {
  return shape.window == 0 && shape.cap == 0 && may_have_kernels(type, heads) &&
         fused(handle_).problem(type, heads.head_dim, at::kCUDA).empty();
}

/// LibTorch's adds as threads arrive.
bool PackedAttention::has_ordered_backward(at::ScalarType, const RotaryShape&,
                                           const TreeAttentionShape&) {
  return false;
}

void PackedAttention::forward(const Tensor& heads_TE, const Tensor& keys_CX,
                              const AttentionLevel& level, const RotaryShape& heads,
                              const TreeAttentionShape& shape, Tensor out_TC, Tensor logsumexp_TN) {
  fused(handle_).forward(heads_TE, keys_CX, level, heads, shape.scale, std::move(out_TC),
                         std::move(logsumexp_TN));
}

void PackedAttention::backward(const Tensor& dy_TC, const Tensor& y_TC, const Tensor& heads_TE,
                               const Tensor& logsumexp_TN, const AttentionLevel& level,
                               const RotaryShape& heads, const TreeAttentionShape& shape,
                               Tensor dheads_TE) {
  fused(handle_).backward(dy_TC, y_TC, heads_TE, logsumexp_TN, level, heads, shape.scale,
                          std::move(dheads_TE));
}

}  // namespace slime::kernels::cuda
