#pragma once

/// Latent attention in its absorbed form, around the attention itself: queries take over the product that
/// makes keys of latents, and what was seen of latents becomes values (arXiv 2405.04434, section 2.1.2).

#include "model/attention.h"

namespace slime::model {

/// [T, N (R + L) + R + L]: of each head what rotates and its query of latents, then the one key that all
/// share. Not yet rotated.
Tensor absorbed_heads(const LatentLayer& layer, const LatentInput& in);
/// The layer as attention over that one key head sees it (AttentionLayer::values_are_keys).
AttentionLayer absorbed_layer(const LatentLayer& layer);
/// From what the heads saw, [T, N (R + L)], to values: [T, N V].
Tensor expanded_values(const LatentLayer& layer, const Tensor& seen_TE);

}  // namespace slime::model
