/// Which families have draft layers, and what files call them.

#include <algorithm>
#include <array>

#include "core/error.h"
#include "model/families/family.h"

namespace slime::model {
namespace {

constexpr int64_t kMostDraftLayers = 64;

struct DraftNames {
  std::string_view layers;
  std::string_view around;
  bool is_behind_layers;  // numbers go on where those of the layers end
  std::string_view embedding_norm, hidden_norm, projection, last_norm;
  bool hidden_is_first;
};

/// Beside them stand embed_tokens and shared_head.head, which are copies of the model's own.
constexpr DraftNames kDeepSeek{.layers = "model.layers.",
                               .around = "",
                               .is_behind_layers = true,
                               .embedding_norm = "enorm",
                               .hidden_norm = "hnorm",
                               .projection = "eh_proj",
                               .last_norm = "shared_head.norm",
                               .hidden_is_first = false};
constexpr DraftNames kMimo{.layers = "model.mtp_layers.",
                           .around = "",
                           .is_behind_layers = false,
                           .embedding_norm = "token_layernorm",
                           .hidden_norm = "hidden_layernorm",
                           .projection = "input_proj",
                           .last_norm = "final_layernorm",
                           .hidden_is_first = true};
constexpr DraftNames kQwen{.layers = "mtp.layers.",
                           .around = "mtp.",
                           .is_behind_layers = false,
                           .embedding_norm = "pre_fc_norm_embedding",
                           .hidden_norm = "pre_fc_norm_hidden",
                           .projection = "fc",
                           .last_norm = "norm",
                           .hidden_is_first = false};

struct DraftRow {
  std::string_view model_type;
  std::string_view count;  // the field of config.json
  int64_t absent;          // what it means where it is not there
  const DraftNames* names;
};

constexpr std::array kDraftRows = {
    DraftRow{"deepseek_v3", "num_nextn_predict_layers", 0, &kDeepSeek},
    DraftRow{"deepseek_v32", "num_nextn_predict_layers", 0, &kDeepSeek},
    DraftRow{"glm4_moe", "num_nextn_predict_layers", 0, &kDeepSeek},
    DraftRow{"glm4_moe_lite", "num_nextn_predict_layers", 0, &kDeepSeek},
    DraftRow{"glm_moe_dsa", "num_nextn_predict_layers", 0, &kDeepSeek},
    DraftRow{"kimi_k2", "num_nextn_predict_layers", 0, &kDeepSeek},
    DraftRow{"mimo", "num_nextn_predict_layers", 1, &kMimo},
    DraftRow{"qwen3_5", "mtp_num_hidden_layers", 1, &kQwen},
    DraftRow{"qwen3_5_moe", "mtp_num_hidden_layers", 1, &kQwen},
    DraftRow{"qwen3_5_moe_text", "mtp_num_hidden_layers", 1, &kQwen},
    DraftRow{"qwen3_5_text", "mtp_num_hidden_layers", 1, &kQwen},
    DraftRow{"qwen3_next", "num_nextn_predict_layers", 1, &kQwen},
};

const DraftRow& draft_row(std::string_view model_type) {
  const auto* row = std::ranges::find(kDraftRows, model_type, &DraftRow::model_type);
  check(row != kDraftRows.end(), "a family that reads draft layers has a row of their names");
  return *row;
}

}  // namespace

void read_draft_layers(const FieldReader& fields, ModelConfig& config) {
  const DraftRow& row = draft_row(config.model_type);
  const DraftNames& names = *row.names;
  DraftConfig drafts;
  drafts.count = fields.integer(row.count, 0, kMostDraftLayers).value_or(row.absent);
  drafts.layers = names.layers;
  drafts.around = names.around;
  drafts.first_number = names.is_behind_layers ? config.num_layers : 0;
  drafts.embedding_norm = names.embedding_norm;
  drafts.hidden_norm = names.hidden_norm;
  drafts.projection = names.projection;
  drafts.last_norm = names.last_norm;
  drafts.hidden_is_first = names.hidden_is_first;
  drafts.has_own_embedding = fields.boolean("mtp_use_dedicated_embeddings").value_or(false);
  if (names.is_behind_layers) {
    for (int64_t i = 0; i < drafts.count; ++i) config.carried_prefixes.push_back(drafts.block(i));
  } else {  // whatever the number
    config.carried_prefixes.emplace_back(names.around.empty() ? names.layers : names.around);
  }
  if (drafts.count > 0) config.drafts = std::move(drafts);
}

void write_draft_layers(const ModelConfig& config, json::object& out) {
  out[draft_row(config.model_type).count] = config.drafts.count;
  if (config.drafts.has_own_embedding) out["mtp_use_dedicated_embeddings"] = true;
}

}  // namespace slime::model
