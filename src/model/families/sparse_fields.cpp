/// What families with sparse attention read and write alike: the indexer, and which layers have one.

#include <fmt/format.h>

#include "model/families/family.h"

namespace slime::model {

void read_indexer(const FieldReader& fields, ModelConfig& config) {
  const FieldReader needed = fields.required();
  IndexerConfig& indexer = config.indexer;
  indexer.num_heads = needed.integer("index_n_heads", 1, 4096).value_or(1);
  indexer.head_dim = needed.integer("index_head_dim", 2, 4096).value_or(2);
  indexer.count = needed.integer("index_topk", 1, 1 << 24).value_or(1);
  indexer.in_layer.assign(static_cast<size_t>(config.num_layers), true);
}

void check_indexer(const FieldReader& fields, const ModelConfig& config) {
  fields.expect(config.rotary_dim <= config.indexer.head_dim, "index_head_dim",
                "must be at least qk_rope_head_dim");
  fields.expect(config.latent.q_rank > 0, "q_lora_rank", "is needed by the indexer");
}

void read_indexed_layers(const FieldReader& fields, ModelConfig& config) {
  std::vector<bool>& has_one = config.indexer.in_layer;
  const auto types = fields.strings("indexer_types");
  if (types.empty()) {
    const int64_t every = fields.integer("index_topk_freq", 1, 4096).value_or(1);
    const int64_t offset = fields.integer("index_skip_topk_offset", 0, 4096).value_or(2);
    for (int64_t i = 0; i < config.num_layers; ++i)
      has_one[static_cast<size_t>(i)] = std::max<int64_t>(i - offset + 1, 0) % every == 0;
    return;
  }
  fields.expect(types.size() == has_one.size(), "indexer_types",
                fmt::format("must have one entry per layer ({})", config.num_layers));
  for (size_t i = 0; i < std::min(types.size(), has_one.size()); ++i) {
    fields.expect(types[i] == "full" || types[i] == "shared", "indexer_types",
                  "must be full or shared for each layer");
    has_one[i] = types[i] == "full";
  }
  fields.expect(has_one.front(), "indexer_types", "must begin with full");
}

void write_indexer(const ModelConfig& config, json::object& out) {
  out["index_n_heads"] = config.indexer.num_heads;
  out["index_head_dim"] = config.indexer.head_dim;
  out["index_topk"] = config.indexer.count;
  out["layer_types"] = json::array(static_cast<size_t>(config.num_layers), "indexed_attention");
}

}  // namespace slime::model
