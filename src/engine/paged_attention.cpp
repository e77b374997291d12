#include "engine/paged_attention.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "kernels/device.h"
#include "kernels/trace.h"
#include "model/absorbed_latent.h"
#include "model/sparse_attention.h"

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

void PagedAttention::begin_step(std::vector<kernels::PagedPlan> plans,
                                std::vector<StateId> states) {
  plans_ = std::move(plans);
  state_of_sequence_ = std::move(states);
}

Tensor PagedAttention::attend(const model::AttentionLayer& layer, const Tensor& qkv_TE,
                              const Tensor& rotary_row_T) {
  return attend_chosen(layer, qkv_TE, rotary_row_T, {});
}

void PagedAttention::choose(const model::LatentLayer& layer, const model::IndexInput& index) {
  const int64_t size = index.key_TD.size(1);
  const auto options = index.key_TD.options();
  float* cached = cache_.index_keys(layer.index);
  const auto place = [&](const kernels::PagedSequence& sequence, int64_t position) {
    const int64_t page = sequence.pages[position / kernels::kPageTokens];
    return cached + (page * kernels::kPageTokens + position % kernels::kPageTokens) * size;
  };
  const Tensor key_TD = index.key_TD.contiguous();
  chosen_.assign(static_cast<std::size_t>(key_TD.size(0)), {});
  const auto group = static_cast<std::size_t>(cache_.group_of(layer.index));
  for (const kernels::PagedSequence& sequence : plans_[group].sequences) {
    const int64_t before = sequence.num_keys - sequence.num_rows;
    const float* own = key_TD.const_data_ptr<float>() + sequence.first_row * size;
    for (int64_t i = 0; i < sequence.num_rows; ++i)
      std::copy_n(own + i * size, size, place(sequence, before + i));
    if (sequence.num_keys <= layer.index_count) continue;
    Tensor key_SD = at::empty({sequence.num_keys, size}, options);
    for (int64_t position = 0; position < sequence.num_keys; ++position)
      std::copy_n(place(sequence, position), size, key_SD.data_ptr<float>() + position * size);
    for (int64_t i = 0; i < sequence.num_rows; ++i) {
      const int64_t row = sequence.first_row + i, visible = before + i + 1;
      if (visible <= layer.index_count) continue;
      const Tensor scores_1S =
          model::index_scores(index.query_TJD.narrow(0, row, 1), index.weight_TJ.narrow(0, row, 1),
                              key_SD.narrow(0, 0, visible));
      const Tensor best = model::best_tokens(scores_1S, layer.index_count).flatten().contiguous();
      std::vector<uint8_t>& chosen = chosen_[static_cast<std::size_t>(row)];
      chosen.assign(static_cast<std::size_t>(visible), 0);
      const auto* position = best.const_data_ptr<int64_t>();
      for (int64_t k = 0; k < layer.index_count; ++k)
        chosen[static_cast<std::size_t>(position[k])] = 1;
    }
  }
}

Tensor PagedAttention::attend_chosen(const model::AttentionLayer& layer, const Tensor& qkv_TE,
                                     const Tensor& rotary_row_T,
                                     const std::vector<const uint8_t*>& chosen_T) {
  const kernels::TraceRange range("paged_attention");
  const int64_t num_rows = qkv_TE.size(0);
  const kernels::PagedPlan& plan = plans_[static_cast<std::size_t>(cache_.group_of(layer.index))];
  check(!plan.sequences.empty() &&
            plan.sequences.back().first_row + plan.sequences.back().num_rows == num_rows,
        "the plan of the step covers all rows");
  Tensor out_TE = at::empty({num_rows, layer.num_heads * layer.head_dim}, qkv_TE.options());
  query_scratch_.resize(num_rows * layer.num_heads * kernels::value_stride(layer.head_dim));
  const Tensor qkv = qkv_TE.contiguous();
  const Tensor q_norm = as_float(layer.q_norm);
  const Tensor k_norm = as_float(layer.k_norm);
  const Tensor sinks = as_float(layer.sinks);
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
  call.values_are_keys = layer.values_are_keys;
  call.scale = static_cast<float>(layer.scale);
  call.cap = static_cast<float>(layer.score_cap);
  call.window = layer.window;
  call.q_norm = floats(q_norm);
  call.k_norm = floats(k_norm);
  call.norm_eps = static_cast<float>(layer.norm_eps);
  call.sinks = floats(sinks);
  call.cos_PR = layer.cos_PR.const_data_ptr<float>();
  call.sin_PR = layer.sin_PR.const_data_ptr<float>();
  call.rotary_half = layer.cos_PR.size(1);
  const Tensor rotary_rows = rotary_row_T.contiguous();
  call.rotary_row_T = rotary_rows.const_data_ptr<int64_t>();
  call.query_scratch = query_scratch_.data();
  call.plan = &plan;
  call.chosen_T = chosen_T.empty() ? nullptr : chosen_T.data();
  kernels::paged_attention(call);
  return out_TE;
}

Tensor PagedAttention::attend_latent(const model::LatentLayer& layer, const model::LatentInput& in,
                                     const Tensor& rotary_row_T) {
  std::vector<const uint8_t*> chosen_T;
  if (layer.index_count > 0) {
    if (in.index) choose(layer, *in.index);
    for (const std::vector<uint8_t>& chosen : chosen_)
      chosen_T.push_back(chosen.empty() ? nullptr : chosen.data());
  }
  return model::expanded_values(
      layer, attend_chosen(model::absorbed_layer(layer), model::absorbed_heads(layer, in),
                           rotary_row_T, chosen_T));
}

}  // namespace slime::engine
