#pragma once

/// One block of a decoder: a mixer and a feed-forward layer on the residual stream, with norms
/// where the family has them.
///
///   x = x + after(mixer(before(x)))
///   x = x + after(feed_forward(before(x)))
///
/// A norm without a name is not there. The residual additions are fused into the norms that follow
/// them.
///
/// Dimensions: T tokens, H hidden.

#include <memory>

#include "kernels/param.h"
#include "model/costs.h"
#include "model/layers/feed_forward.h"
#include "model/layers/layer_site.h"
#include "model/layers/mixer.h"

namespace slime::model {

/// The residual stream between layers: its value is residual + update. The addition waits for the
/// next norm, which reads the sum anyway.
struct Stream {
  Tensor residual_TH;
  Tensor update_TH;  // undefined: the residual is the sum

  Stream rows(const Tensor& wanted_R) const;
};

/// Which layers a block is made of. Called once per block, in the order of the weights.
struct BlockLayers {
  std::unique_ptr<Mixer> (*mixer)(const LayerSite& site);
  std::unique_ptr<FeedForward> (*feed_forward)(const LayerSite& site);
};

class DecoderBlock {
 public:
  /// The norms around one layer, [H] each; undefined where the family has none.
  struct Norms {
    kernels::Param before;
    kernels::Param after;
  };

  /// Registers the block's weights: norm before the mixer, mixer, norm after it, the same for the
  /// feed-forward layer.
  DecoderBlock(const LayerSite& site, const BlockLayers& layers);
  DecoderBlock(const DecoderBlock&) = delete;  // the builder points at the parameters
  DecoderBlock& operator=(const DecoderBlock&) = delete;

  /// Norms and the product of gate and up are not kept for the backward pass but made again.
  void set_selective(bool on) { is_selective_ = on; }

  /// Without grad mode the residual of `in` may be overwritten. `routers`: TokenBatch::routers.
  Stream forward(const Stream& in, const Tensor& positions_T, Attention& attention,
                 RouterPass* routers) const;
  /// The same of these rows alone; the mixer sees all. Without gradients.
  Stream forward_of_rows(const Tensor& wanted_R, const Stream& in, const Tensor& positions_T,
                         Attention& attention) const;

  BlockNeeds needs() const;

  const Norms& mixer_norms() const { return mixer_norms_; }
  const Mixer& mixer() const { return *mixer_; }
  const Norms& feed_forward_norms() const { return feed_forward_norms_; }
  const FeedForward& feed_forward() const { return *feed_forward_; }

 private:
  bool makes_again() const;
  kernels::Param weight_of(const kernels::Param& norm) const;
  Stream mixed(const Stream& in, const Tensor& positions_T, Attention& attention) const;
  Stream fed_forward(const Stream& in, RouterPass* routers, bool infers) const;

  double eps_;
  int64_t hidden_;
  bool norms_add_one_;
  bool is_selective_ = false;
  Norms mixer_norms_;
  std::unique_ptr<Mixer> mixer_;
  Norms feed_forward_norms_;
  std::unique_ptr<FeedForward> feed_forward_;
};

}  // namespace slime::model
