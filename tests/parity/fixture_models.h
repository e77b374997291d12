#pragma once

/// The golden models of tests/fixtures/models, opened for tests.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "golden_gradients.h"
#include "kernels/linear_logprob.h"
#include "model/golden_models_for_tests.h"
#include "model/network.h"
#include "model/safetensors.h"
#include "model/tree_attention.h"

namespace slime::testing {

/// Where the state of a gated delta net has decayed, its norm magnifies rounding.
inline bool has_states(const std::string& name) {
  return golden_models::has_delta_nets(model::read_model_config(golden_models::directory(name)));
}
/// Of log-probs and entropies in float32 (tests/fixtures/models/README.md).
inline double log_prob_tolerance(const std::string& name) { return has_states(name) ? 5e-4 : 1e-4; }

/// Logits that were stored as 16-bit fractions of each row's range, with a third byte where that is coarse.
struct GoldenLogits {
  Tensor logit_TV;    // float64
  Tensor rounding_T;  // float64  the most that one of this row differs from the reference's
};

struct FixtureModel {
  std::filesystem::path directory;
  json::object golden;             // golden.json
  model::SafetensorsFile tensors;  // golden.safetensors

  explicit FixtureModel(const std::string& name)
      : directory(golden_models::directory(name)),
        golden(read_json_file(directory / "golden.json").as_object()),
        tensors(directory / "golden.safetensors") {}

  GoldenLogits logits(const std::string& sequence) const {
    const Tensor scale_T2 = tensors.read(sequence + ".logit_scale").to(at::kDouble);
    const Tensor middle_T1 = scale_T2.slice(1, 0, 1), step_T1 = scale_T2.slice(1, 1, 2);
    Tensor steps_TV = tensors.read(sequence + ".logits").to(at::kDouble);
    const bool is_fine = tensors.tensors().contains(sequence + ".logits_low");
    if (is_fine) steps_TV = steps_TV + tensors.read(sequence + ".logits_low").to(at::kDouble) / 256;
    return {middle_T1 + step_T1 * steps_TV, step_T1.squeeze(1) / (is_fine ? 512 : 2)};
  }
  /// Of the stored tensor of this name: its sums with random signs (sign_sums).
  Tensor gradient(const std::string& name) const {
    const json::object& norms = golden.at("grad_norms").as_object();  // in the order of the sums
    const auto row = std::ranges::find(norms, name, [](const auto& entry) { return entry.key(); });
    check(row != norms.end(), "the golden model has a gradient of this name");
    return tensors.read("grad_projections")[row - norms.begin()];
  }

  std::vector<std::vector<int64_t>> sequences() const {
    return json::value_to<std::vector<std::vector<int64_t>>>(golden.at("sequences"));
  }
};

/// The reference's choices of experts for all tokens of all sequences: int16 [layers, T, K].
inline Tensor golden_experts(const FixtureModel& fixture, const model::ModelConfig& config) {
  std::vector<Tensor> parts;
  const std::vector<std::vector<int64_t>> sequences = fixture.sequences();
  for (size_t i = 0; i < sequences.size(); ++i) {
    Tensor choice_YTK = at::zeros(
        {config.num_layers, static_cast<int64_t>(sequences[i].size()), config.experts.per_token},
        at::kShort);
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      if (!config.experts.are_in(layer)) continue;
      choice_YTK[layer].copy_(fixture.tensors.read("seq" + std::to_string(i) + ".layer" +
                                                   std::to_string(layer) + ".experts"));
    }
    parts.push_back(choice_YTK);
  }
  return at::cat(parts, 1);
}

/// These sequences end to end as one batch without parents.
inline model::TokenBatch pack(const std::vector<std::vector<int64_t>>& sequences) {
  model::TokenBatch batch;
  std::vector<int64_t> ids, positions;
  for (const auto& sequence : sequences) {
    const auto begin = static_cast<int64_t>(ids.size());
    ids.insert(ids.end(), sequence.begin(), sequence.end());
    for (size_t i = 0; i < sequence.size(); ++i) positions.push_back(static_cast<int64_t>(i));
    batch.segments.push_back({begin, static_cast<int64_t>(ids.size()), -1});
  }
  batch.ids_T = at::tensor(ids, at::kLong);
  batch.rotary_row_T = at::tensor(positions, at::kLong);
  return batch;
}

/// Attention that keeps the choices of all indexers, for one sequence.
class ChosenTokens final : public model::Attention {
 public:
  explicit ChosenTokens(const model::TokenBatch& batch) : attention_(batch) {}
  Tensor attend(const model::AttentionLayer& layer, const Tensor& qkv_TE,
                const Tensor& positions_T) override {
    return attention_.attend(layer, qkv_TE, positions_T);
  }
  Tensor attend_latent(const model::LatentLayer& layer, const model::LatentInput& in,
                       const Tensor& positions_T) override {
    Tensor out = attention_.attend_latent(layer, in, positions_T);
    if (in.index) masks[layer.index] = attention_.choice_of(layer.index)->front().mask_nS;
    return out;
  }

  std::map<int, Tensor> masks;  // bool [T, T], by layer

 private:
  model::TreeAttention attention_;
};

/// Log-probs of the last `count` tokens of a batch of one sequence, without gradients.
inline Tensor last_log_probs(model::Network& network, const model::TokenBatch& batch,
                             model::Attention& attention, int64_t count, double temperature = 1) {
  const at::NoGradGuard no_grad;
  const int64_t length = batch.num_tokens();
  const Tensor hidden_TH = network.forward(batch, attention);
  return network
      .log_probs(hidden_TH.slice(0, length - 1 - count, length - 1),
                 batch.ids_T.slice(0, length - count), {.temperature = temperature})
      .logprob_R;
}

/// Rows of a packed batch that predict something, and what they predict.
struct Targets {
  Tensor row_R, target_R;
};
inline Targets next_tokens(const model::TokenBatch& batch) {
  std::vector<Tensor> rows;
  for (const auto& segment : batch.segments)
    rows.push_back(at::arange(segment.begin, segment.end - 1, at::kLong));
  const Tensor row_R = at::cat(rows);
  return {row_R, batch.ids_T.index_select(0, row_R + 1)};
}

}  // namespace slime::testing
