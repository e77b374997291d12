#pragma once

/// The decoder that llama, mistral, qwen2 and qwen3 share: pre-norm blocks of grouped-query
/// attention and a gated feed-forward layer. What differs between them is data in ModelConfig.

#include <memory>

#include "model/network.h"

namespace slime::model {

/// A network with zero weights; the caller loads or initialises them. `mesh` outlives it.
std::unique_ptr<Network> make_decoder(const ModelConfig& config, const Precision& precision,
                                      const comm::Mesh& mesh);

}  // namespace slime::model
