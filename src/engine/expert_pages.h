#pragma once

/// Routing of cached tokens: the expert ids of each token, stored next to its KV page, so that a
/// request that reuses a prefix gets its routing too.

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "engine/page_pool.h"
#include "engine/step_runner.h"
#include "model/network.h"

namespace slime::engine {

/// What they take beside each page of the cache; 0 without experts.
int64_t expert_page_bytes(const model::Network& network);

class ExpertPages {
 public:
  /// `width`: numbers of a token, layers times visits of each. Memory is touched when it is written.
  ExpertPages(int64_t num_pages, int64_t page_tokens, int64_t width);

  int64_t width() const { return width_; }
  std::span<int16_t> at(PageId page, int64_t slot);
  std::span<const int16_t> at(PageId page, int64_t slot) const {
    return const_cast<ExpertPages*>(this)->at(page, slot);
  }
  void copy_page(PageId from, PageId to);
  /// Appends those of the rows.
  void append(const CachedRows& rows, std::vector<int16_t>& out) const;

 private:
  int64_t page_tokens_;
  int64_t width_;
  Tensor numbers_;  // int16 [pages, tokens of a page, width]
};

}  // namespace slime::engine
