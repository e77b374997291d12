#pragma once

/// Draft layers, as config.json and files describe them: blocks behind the last layer that predict a further
/// token each (multi-token prediction; arXiv 2412.19437, section 2.2). What they compute:
/// model/layers/draft_layer.h.

#include <cstdint>
#include <string>
#include <string_view>

namespace slime::model {

struct DraftConfig {
  int64_t count = 0;  // that the files have
  /// That the network has: none or all. The others are carried through save. Not from config.json: who
  /// loads decides (load_network).
  int64_t computed = 0;
  std::string layers;        // before a layer's number: "model.mtp_layers."
  int64_t first_number = 0;  // "model.layers." goes on behind the last layer
  std::string around;        // before the names below; empty: they are beside those of the block
  std::string embedding_norm;
  std::string hidden_norm;
  std::string projection;  // [H, 2 H]
  std::string last_norm;
  bool hidden_is_first = false;         // the projection reads [hidden; embedding]
  bool has_own_embedding = false;       // such layers are carried alone
  bool has_experts_one_by_one = false;  // in the weight files, whatever the other layers have

  /// "model.mtp_layers.0.": of the tensors of the block.
  std::string block(int64_t which) const {
    return layers + std::to_string(first_number + which) + ".";
  }
  /// "mtp.fc.weight": of one around the block.
  std::string tensor(int64_t which, const std::string& name) const {
    return (around.empty() ? block(which) : around) + name + ".weight";
  }
  /// Whether the network has a block whose tensors begin like this.
  bool has_block(std::string_view prefix) const {
    for (int64_t i = 0; i < computed; ++i)
      if (block(i) == prefix) return true;
    return false;
  }
  bool operator==(const DraftConfig&) const = default;
};

}  // namespace slime::model
