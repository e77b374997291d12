#pragma once

/// An EAGLE-3 draft model: one Llama layer that guesses a target's next tokens from three of its hidden states
/// (arXiv 2503.01840). Its files are a directory of their own.
///
///   x_i = fc [hidden states of three layers of token i]      later: what forward() returned for token i
///   r   = x_i, or hidden_norm(x_i) with norm_before_residual
///   a   = r + attention of [input_layernorm(embedding of t_(i+1)); hidden_norm(x_i)]
///   y_i = a + mlp(post_attention_layernorm(a))
///   logits of t_(i+2): lm_head norm(y_i), over the draft vocabulary
///
/// Queries, keys and values read both vectors side by side; token i rotates by its position i. Embedding and output
/// layer are the target's where the files have none.
///
/// Dimensions: T tokens, H hidden size of the draft model, G that of the target, D ids of the draft vocabulary,
/// R wanted rows.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/token_span.h"
#include "kernels/matrix.h"
#include "model/attention.h"
#include "model/costs.h"
#include "model/layers/gated_mlp.h"
#include "model/network.h"
#include "model/token_batch.h"
#include "model/weights.h"

namespace slime::model {

/// Sizes, options and tensor names of a draft model, as its directory has them for a target.
struct Eagle3Form {
  ModelConfig layer;          // of a Llama with one layer; positions are the target's
  int64_t target_hidden = 0;  // G
  int64_t draft_vocab = 0;    // D
  bool norms_residual = false;
  /// Layers of the target whose inputs are read, ascending; its number of layers: what the last one returns.
  std::vector<int64_t> captured_layers;
  // As the files spell them.
  std::string layer_prefix;   // "midlayer."
  std::string around_prefix;  // of fc and norm: "", or "model."
  std::string embedding;      // empty: the target's
  bool has_head = false;
  bool has_token_map = false;
};

/// One class because its members are the parameters of one pass, whose places the builder keeps.
class Eagle3 {
 public:
  /// Weights are zeros; load_eagle3() fills them.
  Eagle3(Eagle3Form form, const ModelConfig& target, const Precision& precision);
  Eagle3(const Eagle3&) = delete;  // the builder points at the parameters
  Eagle3& operator=(const Eagle3&) = delete;

  const Eagle3Form& form() const { return form_; }
  const Weights& weights() const { return weights_; }
  Weights& weights() { return weights_; }
  /// Ids of the target, one for each of the draft vocabulary.
  const std::vector<TokenId>& token_ids() const { return token_ids_; }
  void set_token_ids(std::vector<TokenId> ids) { token_ids_ = std::move(ids); }

  /// What its layer asks of a cache; to attention it is layer 0.
  std::span<const BlockNeeds> blocks() const { return {&needs_, 1}; }

  /// x of HiddenCapture::hidden_TC: [T, H].
  Tensor fused(const Tensor& hidden_TC) const;
  /// y: [T, H], or [R, H] of TokenBatch::wanted_R. hidden_TH is x, batch.ids_T the tokens behind, rotary_row_T the rows
  /// of the tokens themselves. Without gradients.
  Tensor forward(const Tensor& hidden_TH, const TokenBatch& batch, const Network& target,
                 Attention& attention) const;
  /// float32 [R, D].
  Tensor logits(const Tensor& hidden_RH, const Network& target) const;

 private:
  Tensor embeddings(const TokenBatch& batch, const Network& target) const;

  Eagle3Form form_;
  at::ScalarType activations_;
  Weights weights_;
  AttentionLayer attention_;
  kernels::MatrixParam fuse_;        // [H, 3 G]
  kernels::Param embedding_norm_;    // [H]
  kernels::Param hidden_norm_;       // [H]
  kernels::MatrixParam projection_;  // [E, 2 H]
  kernels::MatrixParam output_;      // [H, N D] of N heads
  kernels::Param mlp_norm_;          // [H]
  std::unique_ptr<GatedMlp> mlp_;
  kernels::Param last_norm_;   // [H]
  kernels::MatrixParam head_;  // [D, H], or undefined
  kernels::Param embedding_;   // [V, H], or undefined
  std::vector<TokenId> token_ids_;
  BlockNeeds needs_;
};

/// Every reason why `directory` is no EAGLE-3 draft model for a target of this configuration, from config.json, the
/// headers of its weight files and the ids of its vocabulary; empty: it is one. `flag`: what named the directory, before
/// each reason.
std::vector<std::string> eagle3_problems(const std::filesystem::path& directory,
                                         const ModelConfig& target, std::string_view flag = "");

/// Throws ConfigError with those, or with what is wrong with the tensors' contents.
std::shared_ptr<const Eagle3> load_eagle3(const std::filesystem::path& directory,
                                          const ModelConfig& target, const Precision& precision,
                                          std::string_view flag = "");

/// The same without memory, for what it costs.
std::shared_ptr<const Eagle3> outline_eagle3(const std::filesystem::path& directory,
                                             const ModelConfig& target, std::string_view flag = "");

}  // namespace slime::model
