#pragma once

/// Counts of a model that a plan needs, from its config.json alone. No weight is read and none is
/// made.

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/layer_shapes.h"
#include "model/adapter_config.h"
#include "model/config.h"
#include "model/costs.h"
#include "model/eagle3.h"

namespace slime::estimate {

/// Attention of all layers with keys, of whole tensors.
struct AttentionShape {
  kernels::RotaryShape heads;
  bool has_caps = false;         // on scores
  std::vector<int64_t> windows;  // each that a layer has, once; 0: all earlier tokens
};

AttentionShape attention_of(const model::ModelConfig& model);

/// Numbers of adapters by who holds them.
struct AdapterShape {
  int64_t whole = 0;    // on every tensor-parallel rank: the halves at the residual stream
  int64_t sliced = 0;   // divided among tensor-parallel ranks: the other halves
  int64_t experts = 0;  // of routed experts: divided among ep x etp ranks

  int64_t numbers() const { return whole + sliced + experts; }
};

/// One block. Parameters by who holds them.
struct BlockShape {
  int64_t whole = 0;    // on every tensor-parallel rank: norms, biases, routers
  int64_t sliced = 0;   // divided among tensor-parallel ranks: attention, dense and shared experts
  int64_t experts = 0;  // of all routed experts: divided among ep x etp ranks
  int64_t dispatched_numbers = 0;  // per token, to experts and back each: K x hidden; 0 without

  double expert_flops = 0;  // of costs.flops_per_token, those in routed experts

  AdapterShape adapters;  // trained in the place of the parameters; zeros without

  model::Costs costs;
  model::CacheSpec cache;
  int64_t window = 0;  // tokens that its attention looks at; 0: all

  int64_t parameters() const { return whole + sliced + experts; }
};

/// Draft layers of the model, or a draft model: what engines that draft with them hold besides (docs/speculation.md).
struct DraftShape {
  int64_t parameters = 0;
  /// Layers are divided among the ranks of an engine and published with the other weights; a draft model is whole on
  /// each rank, and stays as it is.
  bool are_layers = false;
  bool are_trained = false;  // by the ranks of the last layers
  std::vector<model::BlockNeeds> blocks;
};

struct ModelShape {
  std::string model_type;
  int64_t hidden = 0;
  int64_t vocab = 0;
  int64_t embedding = 0;  // parameters
  int64_t head = 0;       // 0 where it is the embedding
  AttentionShape attention;
  /// Of embedding and output layer, where adapters are asked for there.
  AdapterShape embedding_adapters, head_adapters;
  bool trains_adapters = false;
  /// Bytes of all weights as engines store them where they have codes (coded_weight_bytes); 0: they are plain.
  int64_t coded_bytes = 0;
  std::vector<BlockShape> blocks;
  std::vector<DraftShape> drafts;  // not among the blocks and the parameters

  int64_t parameters() const;
  /// Numbers of all adapters; 0 where the parameters themselves are trained.
  int64_t adapters() const;
  /// Those that a token's forward pass multiplies with.
  int64_t active_parameters(const model::ModelConfig& config) const;
};

/// Of the weights of an engine of one rank whose matrices are codes (kernels::MatrixFormat::kFp8Blocks), the rest
/// bfloat16.
int64_t coded_weight_bytes(const model::ModelConfig& config);

/// Throws ConfigError for a model type that is not known. `adapters`: what is trained in the place of the
/// parameters; null: those are.
ModelShape shape_of(const model::ModelConfig& config, const model::AdapterForm* adapters = nullptr);

/// Of all draft layers that config.json tells of. Throws ConfigError where they are not computed
/// (model::why_no_draft_layers).
DraftShape draft_layers_shape(const model::ModelConfig& config);
DraftShape draft_model_shape(const model::Eagle3& draft);

}  // namespace slime::estimate
