#pragma once

/// A draft layer: from the model's hidden state of a token and the token behind it to a hidden state whose
/// logits predict the one behind that (multi-token prediction; arXiv 2412.19437, section 2.2).
///
///   x = P [norm(embedding of t_(i+1)); norm(h_i)]      or the other way round
///   y = norm(block(x))                                 logits: those of the model's own output layer
///
/// h_i: hidden state of token i behind the model's last norm, or what a draft layer returned for it: y is what
/// the next draft starts from. The block is one of the model's, with full attention, keys and values of its
/// own and, where the model has some, experts; token i rotates by its position i.
///
/// Dimensions: T tokens, H hidden.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "model/layers/block_chain.h"
#include "model/layers/decoder_block.h"

namespace slime::model {

/// Reason why a model's draft layers are not computed, by its configuration alone; empty: they are.
std::vector<std::string> draft_layer_problems(const ModelConfig& config);

class DraftLayer {
 public:
  /// Registers its weights. `which`: of config.drafts. To attention and caches it is the layer that many
  /// behind the last one. Throws ConfigError for what is not computed: layers with an indexer or an embedding
  /// of their own, several with one projection, pipeline stages, rows that ranks divide.
  DraftLayer(const ModelConfig& config, int64_t which, const comm::Mesh& mesh,
             const RotaryTable& rotary, Weights::Builder& builder, const BlockLayers& layers);
  DraftLayer(const DraftLayer&) = delete;  // the builder points at the parameters
  DraftLayer& operator=(const DraftLayer&) = delete;

  /// What the block reads, [T, H], of two such.
  Tensor joined(const Tensor& hidden_TH, const Tensor& embedding_TH) const;
  Blocks block() const { return block_; }
  const kernels::Param& last_norm() const { return last_norm_; }

  /// Of the block and what is around it.
  BlockNeeds needs() const;

 private:
  double eps_;
  int64_t hidden_;
  bool norms_add_one_;
  bool hidden_is_first_;
  kernels::Param embedding_norm_;    // [H]
  kernels::Param hidden_norm_;       // [H]
  kernels::MatrixParam projection_;  // [H, 2 H], whole on all ranks
  std::array<std::unique_ptr<DecoderBlock>, 1> block_;
  kernels::Param last_norm_;  // [H]
};

}  // namespace slime::model
