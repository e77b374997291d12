#pragma once

/// The decoder that llama, mistral, qwen2 and qwen3 share: pre-norm blocks of grouped-query
/// attention and a gated feed-forward layer. What differs between them is data in ModelConfig.

#include <memory>

#include "model/network.h"

namespace slime::model {

/// A network with zero weights of this layout; the caller loads or initialises them.
std::unique_ptr<Network> make_decoder(const ModelConfig& config, const Precision& precision,
                                      const ParallelLayout& layout);

}  // namespace slime::model
