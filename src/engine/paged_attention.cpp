#include "engine/paged_attention.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "kernels/trace.h"

namespace slime::engine {
namespace {

kernels::FloatKind kind_of(at::ScalarType type) {
  check(type == at::kFloat || type == at::kBFloat16, "the engine computes in float32 or bfloat16");
  return type == at::kFloat ? kernels::FloatKind::kFloat32 : kernels::FloatKind::kBFloat16;
}

/// A norm weight as float32; undefined stays undefined.
Tensor as_float(const kernels::Param& weight) {
  return weight.defined() ? weight.value.to(at::kFloat).contiguous() : Tensor();
}

const float* floats(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
}

}  // namespace

void PagedAttention::begin_step(kernels::PagedPlan plan) { plan_ = std::move(plan); }

Tensor PagedAttention::attend(const model::AttentionLayer& layer, const Tensor& qkv_TE,
                              const Tensor&) {
  const kernels::TraceRange range("paged_attention");
  const int64_t num_rows = qkv_TE.size(0);
  check(!plan_.sequences.empty() &&
            plan_.sequences.back().first_row + plan_.sequences.back().num_rows == num_rows,
        "the plan of the step covers all rows");
  Tensor out_TE = at::empty({num_rows, layer.num_heads * layer.head_dim}, qkv_TE.options());
  query_scratch_.resize(num_rows * layer.num_heads * kernels::value_stride(layer.head_dim));
  const Tensor qkv = qkv_TE.contiguous();
  const Tensor q_norm = as_float(layer.q_norm);
  const Tensor k_norm = as_float(layer.k_norm);
  kernels::PagedAttentionCall call;
  call.qkv_TE = qkv.const_data_ptr();
  call.out_TE = out_TE.data_ptr();
  call.activations = kind_of(qkv_TE.scalar_type());
  call.keys = cache_.keys(layer.index);
  call.values = cache_.values(layer.index);
  call.storage = kind_of(cache_.dtype());
  call.num_heads = layer.num_heads;
  call.num_kv_heads = layer.num_kv_heads;
  call.head_dim = layer.head_dim;
  call.scale = static_cast<float>(layer.scale);
  call.window = layer.window;
  call.q_norm = floats(q_norm);
  call.k_norm = floats(k_norm);
  call.norm_eps = static_cast<float>(layer.norm_eps);
  call.cos_PR = layer.cos_PR.const_data_ptr<float>();
  call.sin_PR = layer.sin_PR.const_data_ptr<float>();
  call.rotary_half = layer.cos_PR.size(1);
  call.query_scratch = query_scratch_.data();
  call.plan = &plan_;
  kernels::paged_attention(call);
  return out_TE;
}

}  // namespace slime::engine
