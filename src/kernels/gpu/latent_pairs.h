#pragma once

/// Additions of an adapter of the expanding product to latent attention (kernels/gpu/latent.h), in single operations.
/// Factors and sums are float32; an addition is rounded into what the product has left. Compiled into a GPU's side too.
///
/// Dimensions: as in kernels/gpu/latent.h; C tokens of the cache.

#include <span>

#include "kernels/gpu/latent.h"

namespace slime::kernels {

/// To queries [T, N, R + L], whose last L take over the product with keys.
void add_latent_queries_(std::span<const LatentPair> pairs, const Tensor& plain_query_TNP,
                         const Tensor& q_TNE);
/// To values [T, N V], from what the heads saw of the latents.
void add_latent_values_(std::span<const LatentPair> pairs, const Tensor& seen_TNL,
                        const Tensor& y_TC);
/// To keys and values of all heads, [C, N, P + V].
void add_expanded_latents_(std::span<const LatentPair> pairs, const Tensor& latent_CL,
                           const Tensor& expanded_CNE);

}  // namespace slime::kernels
