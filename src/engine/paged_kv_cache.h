#pragma once

/// The memory of the key-value cache: for each layer one array of keys and one of values, in pages,
/// laid out as kernels/cpu/paged_attention.h reads them. Page ids are those of a PagePool of the
/// same size.

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "engine/page_pool.h"
#include "model/costs.h"

namespace slime::engine {

class PagedKvCache {
 public:
  /// One array of keys and one of values per block; none where a block keeps a state instead
  /// (engine/state_cache.h). `dtype` is kFloat or kBFloat16. Memory is
  /// touched only when it is written, so an unused budget costs nothing.
  PagedKvCache(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype, int64_t num_pages);

  /// What one page takes over all layers.
  static int64_t page_bytes(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype);

  void* keys(int layer) const;
  void* values(int layer) const;
  /// Keys of the layer's indexer, float32 [pages, tokens of a page, index_size].
  float* index_keys(int layer) const;
  at::ScalarType dtype() const { return dtype_; }
  int64_t num_pages() const { return num_pages_; }

  /// Gives the memory back to the system: everything reads as zeros afterwards.
  void release_memory();

  /// Copies all layers of a page (for a request that continues in the middle of a page somebody
  /// else filled).
  void copy_page(PageId from, PageId to);

 private:
  at::ScalarType dtype_;
  int64_t num_pages_;
  int64_t page_key_bytes_;  // of one layer
  int64_t page_value_bytes_;
  std::vector<Tensor> keys_;  // per layer, flat
  std::vector<Tensor> values_;
  std::vector<Tensor> index_keys_;
};

}  // namespace slime::engine
