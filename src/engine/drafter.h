#pragma once

/// Interface of what foretells tokens from hidden states: the network's own draft layer, or a draft model in files of
/// its own. Of one step; references outlive it.
///
/// Dimensions: T tokens, R rows, H hidden size, D ids that it tells apart.

#include "core/tensor.h"
#include "core/token_span.h"
#include "model/eagle3.h"
#include "model/network.h"

namespace slime::engine {

class Drafter {
 public:
  virtual ~Drafter() = default;

  /// What the first pass reads of the model's states of some rows (DraftPasses::run()).
  virtual Tensor first_states(const Tensor& of_model_TC) const = 0;
  /// States that logits() and a further pass go on from: [T, H], or those of TokenBatch::wanted_R, which may be none.
  /// `batch` has the tokens behind the states, and the rotary rows of the states' own.
  virtual Tensor pass(const Tensor& hidden_TH, const model::TokenBatch& batch,
                      model::Attention& attention) = 0;
  /// float32 [R, D].
  virtual Tensor logits(const Tensor& hidden_RH) const = 0;
  /// The model's id of one of the D.
  virtual TokenId token_of(TokenId drafted) const = 0;
};

/// Network::draft().
class LayerDrafter final : public Drafter {
 public:
  explicit LayerDrafter(model::Network& network) : network_(network) {}

  Tensor first_states(const Tensor& of_model_TC) const override { return of_model_TC; }
  Tensor pass(const Tensor& hidden_TH, const model::TokenBatch& batch,
              model::Attention& attention) override {
    return network_.draft(0, hidden_TH, batch, attention);
  }
  Tensor logits(const Tensor& hidden_RH) const override { return network_.logits(hidden_RH); }
  TokenId token_of(TokenId drafted) const override { return drafted; }

 private:
  model::Network& network_;
};

class Eagle3Drafter final : public Drafter {
 public:
  Eagle3Drafter(const model::Eagle3& draft, const model::Network& network)
      : draft_(draft), network_(network) {}

  Tensor first_states(const Tensor& of_model_TC) const override {
    return draft_.fused(of_model_TC);
  }
  Tensor pass(const Tensor& hidden_TH, const model::TokenBatch& batch,
              model::Attention& attention) override {
    return draft_.forward(hidden_TH, batch, network_, attention);
  }
  Tensor logits(const Tensor& hidden_RH) const override {
    return draft_.logits(hidden_RH, network_);
  }
  TokenId token_of(TokenId drafted) const override {
    return draft_.token_ids()[static_cast<std::size_t>(drafted)];
  }

 private:
  const model::Eagle3& draft_;
  const model::Network& network_;
};

}  // namespace slime::engine
