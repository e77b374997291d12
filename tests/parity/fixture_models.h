#pragma once

/// The golden models of tests/fixtures/models, opened for tests.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/json.h"
#include "kernels/linear_logprob.h"
#include "model/network.h"
#include "model/safetensors.h"
#include "model/tree_attention.h"

namespace slime::testing {

/// All of them. Some lie here with their configuration alone, and whole beside the project
/// (tests/fixtures/models/README.md).
inline auto golden_models() {
  return ::testing::Values(
      "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v3_noq", "gemma2", "gemma3_caps",
      "gemma3_text", "glm4", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "gpt_oss", "kimi_k2",
      "llama", "llama3_rope", "mimo", "minimax_m2", "mistral", "olmo2", "phi3", "qwen2",
      "qwen2_moe", "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_moe", "qwen3_next");
}

/// Where the model lies whole; where it would lie if it does not.
inline std::filesystem::path fixture_directory(const std::string& name) {
  const std::filesystem::path root = SLIME_SOURCE_DIR;
  const auto here = root / "tests/fixtures/models" / name;
  for (const auto& place : {here, root / "../shared/fixtures/models" / name,
                            root / "../../shared/fixtures/models" / name}) {
    if (std::filesystem::exists(place / "golden.json")) return place;
  }
  return here;
}

/// Skips the test where the model is not there.
#define SLIME_NEEDS_MODEL(name)                                                   \
  if (!std::filesystem::exists(testing::fixture_directory(name) / "golden.json")) \
  GTEST_SKIP() << "the golden model " << (name) << " is not in this tree, nor beside it"

/// Where the state of a gated delta net has decayed, its norm magnifies rounding.
inline bool has_states(const std::string& name) {
  return name == "qwen3_5" || name == "qwen3_5_moe" || name == "qwen3_next";
}
/// Of log-probs and entropies in float32 (tests/fixtures/models/README.md).
inline double log_prob_tolerance(const std::string& name) { return has_states(name) ? 5e-4 : 1e-4; }

struct FixtureModel {
  std::filesystem::path directory;
  json::object golden;             // golden.json
  model::SafetensorsFile tensors;  // golden.safetensors

  explicit FixtureModel(const std::string& name)
      : directory(fixture_directory(name)),
        golden(read_json_file(directory / "golden.json").as_object()),
        tensors(directory / "golden.safetensors") {}

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
  batch.positions_T = at::tensor(positions, at::kLong);
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
