#pragma once

/// config.json of a model directory, parsed into the fields networks are built from.
///
/// Both forms in the wild are read: the hub's (torch_dtype, rope_theta, rope_scaling) and the one
/// recent libraries write (dtype, rope_parameters, layer_types). Unknown values of known fields are
/// errors that name the field.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/sample.h"
#include "model/delta_config.h"
#include "model/draft_config.h"
#include "model/experts_config.h"

namespace slime::model {

struct Rope {
  /// kDynamic differs from kDefault behind max_position_embeddings alone, where nothing is computed
  /// here; kLongrope has other frequencies for sequences that are longer than the original positions
  /// (docs/decisions/0095-rope-kinds.md).
  enum class Kind { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongrope };
  Kind kind = Kind::kDefault;
  double theta = 10000;
  double factor = 1;                   // all but kDefault
  double low_freq_factor = 1;          // llama3
  double high_freq_factor = 4;         // llama3
  int64_t original_max_positions = 0;  // llama3, yarn, longrope
  double attention_factor = 0;  // yarn, longrope: of sines and cosines; 0: by the kind's rule
  std::vector<double> short_factors, long_factors;  // longrope: one for each frequency
  double beta_fast = 32;                            // yarn, as all below
  double beta_slow = 1;
  bool truncates = true;      // bounds of the ramp to whole dimensions
  double mscale = 0;          // 0: not given
  double mscale_all_dim = 0;  // 0: not given; also enters the scale of latent attention's scores

  bool operator==(const Rope&) const = default;
};

/// What the norms of queries and keys are taken over.
enum class QkNorm { kNone, kPerHead, kAllHeads };

/// How files hold some of their matrices (model/low_precision.h), from quantization_config.
enum class StoredForm { kPlain, kFp8Blocks, kMxfp4, kInt4Groups };

/// Of the gate of a dense feed-forward layer; kGelu: in its tanh form.
enum class Activation { kSilu, kGelu };

/// Names of a block's norms behind "model.layers.INDEX."; empty: there is none. Pre-norm unless a
/// family says otherwise.
struct BlockNorms {
  std::string before_mixer = "input_layernorm";
  std::string after_mixer;
  std::string before_feed_forward = "post_attention_layernorm";
  std::string after_feed_forward;

  bool operator==(const BlockNorms&) const = default;
};

/// Attention over a compressed context (arXiv 2405.04434, section 2.1): keys and values of all heads
/// are products of one latent vector, and all heads share one rotating key.
struct LatentConfig {
  int64_t kv_rank = 0;    // size of the latent; 0: attention is not latent
  int64_t q_rank = 0;     // of the queries' own latent; 0: they are one product
  int64_t plain_dim = 0;  // numbers of a head of queries and keys that do not rotate
  int64_t value_dim = 0;

  bool operator==(const LatentConfig&) const = default;
};

/// Sparse attention: which layers have an indexer, and how many tokens it chooses. A layer without
/// one takes the choice of the last layer that has.
struct IndexerConfig {
  std::vector<bool> in_layer;  // [layers]; empty: attention looks at all tokens
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t count = 0;           // of chosen tokens
  bool rotates_pairs = false;  // neighbours with each other, instead of halves

  bool operator==(const IndexerConfig&) const = default;
};

struct ModelConfig {
  std::string model_type;                // one of families/families.cpp
  std::string tensor_prefix = "model.";  // of the names of all tensors but the output layer's
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;  // the first so many numbers of a head rotate; even, at most head_dim
  double norm_eps = 1e-6;
  int64_t max_positions = 0;
  Rope rope;
  std::optional<Rope> local_rope;  // of layers with a window, where it is another one
  bool rotates_pairs = false;      // neighbours with each other, instead of halves
  std::vector<int64_t> window;     // per layer, 0 = full attention
  bool ties_embeddings = false;
  bool has_qkv_bias = false;
  bool has_output_bias = false;  // of the attention's output projection
  bool has_mlp_bias = false;
  bool has_output_gate = false;    // q_proj is [query; gate] of each head, sigmoid(gate) multiplies
  bool has_fused_qkv = false;      // files hold [q; k; v] as one tensor, "qkv_proj"
  bool has_fused_gate_up = false;  // and [gate; up] as "gate_up_proj"
  QkNorm qk_norm = QkNorm::kNone;
  double query_scalar = 0;        // scores are divided by its root; 0: by that of head_dim
  double score_cap = 0;           // of attention's scores (kernels/soft_cap.h); 0: none
  double logit_cap = 0;           // and of the logits
  bool norms_add_one = false;     // norms multiply with 1 + weight
  bool has_sinks = false;         // of attention: a learned score of each head without a value
  bool scales_embedding = false;  // by the root of hidden_size
  Activation activation = Activation::kSilu;
  IndexerConfig indexer;
  LatentConfig latent;  // head_dim is plain_dim + rotary_dim then
  BlockNorms norms;
  /// Tensors whose names begin like this are no part of the network: they are carried through save.
  std::vector<std::string> carried_prefixes;
  ExpertsConfig experts;
  DeltaConfig delta;
  DraftConfig drafts;
  double initializer_range = 0.02;
  StoredForm stored_form = StoredForm::kPlain;  // of matrices that files hold in low precision
  int64_t fp8_block = 0;                        // rows and columns of a block with one factor
  std::string dtype;                            // as stored: "bfloat16", "float32", "float16"
  std::vector<TokenId> eos_token_ids;           // of config.json and generation_config.json
  std::vector<std::string> eos_spellings;       // the same, given as texts
  json::object raw;  // the file as it stood, written back into checkpoints

  bool has_experts() const { return experts.are_anywhere(); }
  /// Sequences of more tokens rotate by a second table; 0: there is one for all.
  int64_t rotary_switch() const {
    return rope.kind == Rope::Kind::kLongrope && rope.original_max_positions < max_positions
               ? rope.original_max_positions
               : 0;
  }
  /// Numbers that say which experts a token visits, in all layers.
  int64_t routing_width() const { return num_layers * experts.per_token; }
  bool operator==(const ModelConfig&) const = default;
};

/// Throws ConfigError listing every problem.
ModelConfig read_model_config(const std::filesystem::path& directory);
ModelConfig parse_model_config(const json::object& object, const std::string& where);

}  // namespace slime::model
