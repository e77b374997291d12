#pragma once

/// The decoder: embedding, blocks of a mixer and a feed-forward layer, final norm, output layer.
/// Which layers is the caller's choice; sizes, biases and norms are data in ModelConfig.

#include <memory>

#include "model/network.h"

namespace slime::model {

struct BlockLayers;

/// A network with zero weights; the caller loads or initialises them. `mesh` outlives it.
std::unique_ptr<Network> make_decoder(const ModelConfig& config, const Precision& precision,
                                      const comm::Mesh& mesh, const BlockLayers& layers);

/// With grouped-query attention and dense feed-forward layers in all blocks.
std::unique_ptr<Network> make_dense_decoder(const ModelConfig& config, const Precision& precision,
                                            const comm::Mesh& mesh);

/// With grouped-query attention, and experts in the blocks that the configuration names.
std::unique_ptr<Network> make_expert_decoder(const ModelConfig& config, const Precision& precision,
                                             const comm::Mesh& mesh);

/// The same with latent attention.
std::unique_ptr<Network> make_latent_decoder(const ModelConfig& config, const Precision& precision,
                                             const comm::Mesh& mesh);

/// Experts in the blocks that the configuration names, gated delta nets in those that it names too, and
/// grouped-query attention in the others.
std::unique_ptr<Network> make_delta_decoder(const ModelConfig& config, const Precision& precision,
                                            const comm::Mesh& mesh);

}  // namespace slime::model
