#pragma once

/// Prompts whose rows come from elsewhere, for tests: an "image" whose bytes are token ids, and whose rows
/// are those of the embedding table for these ids. So a prompt with a span has the answers of the same
/// prompt as ids.

#include <ATen/ATen.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/sample.h"
#include "core/xxhash64.h"
#include "kernels/embedding.h"
#include "model/media_source.h"
#include "model/network.h"

namespace slime::testing {

inline std::shared_ptr<const Attachment> picture_of(std::span<const TokenId> ids) {
  Attachment what{.type = "test/ids"};
  what.bytes.assign(reinterpret_cast<const char*>(ids.data()), ids.size_bytes());
  what.w = static_cast<int64_t>(ids.size());
  what.key = xxhash64(what.bytes);
  return std::make_shared<Attachment>(std::move(what));
}

/// Tokens [begin, end) of `ids` become a span that stands for them, with `placeholder` in their places.
inline MediaSpan hide(std::vector<TokenId>& ids, int64_t begin, int64_t end,
                      TokenId placeholder = 0) {
  const auto hidden = std::span(ids).subspan(begin, end - begin);
  MediaSpan span{begin, end, picture_of(hidden)};
  std::ranges::fill(hidden, placeholder);
  return span;
}

inline Tensor ids_of(std::span<const MediaRun> runs) {
  std::vector<int64_t> ids;
  for (const MediaRun& run : runs) {
    for (int64_t i = run.first; i < run.first + run.count; ++i) {
      TokenId id = 0;
      std::memcpy(&id, run.what->bytes.data() + i * sizeof id, sizeof id);
      ids.push_back(id);
    }
  }
  return at::tensor(ids, at::kLong);
}

/// Copies of the network's own rows, and their gradient is that of the table: of one tensor-parallel rank.
class OwnRows final : public model::MediaSource {
 public:
  explicit OwnRows(model::Network& network) : network_(network) {}
  Tensor rows(std::span<const MediaRun> runs) override {
    model::Weights& weights = network_.weights();
    kernels::Param table_VH;
    for (const model::NamedWeight& weight : weights.tensors()) {
      if (weight.name != "model.embed_tokens.weight") continue;
      table_VH.value = model::Weights::view(weights.flat(), weight);
      if (weights.grad().defined()) table_VH.grad = model::Weights::view(weights.grad(), weight);
    }
    return kernels::embedding(ids_of(runs).to(weights.flat().device()), table_VH,
                              weights.flat().scalar_type());
  }

 private:
  model::Network& network_;
};

inline std::unique_ptr<model::Network> with_own_rows(std::unique_ptr<model::Network> network) {
  network->set_media_source(std::make_unique<OwnRows>(*network));
  return network;
}

/// Rows of a table that each rank has whole, as it would have a tower, and the gradient in it.
class TableRows final : public model::MediaSource {
 public:
  explicit TableRows(Tensor table_VH) : table_VH_(table_VH.clone().requires_grad_()) {}
  Tensor rows(std::span<const MediaRun> runs) override {
    return table_VH_.index_select(0, ids_of(runs));
  }
  Tensor gradient() const {
    return table_VH_.grad().defined() ? table_VH_.grad() : at::zeros_like(table_VH_.detach());
  }

 private:
  Tensor table_VH_;
};

}  // namespace slime::testing
