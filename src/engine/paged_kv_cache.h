#pragma once

/// The memory of the key-value cache: for each layer of a page one array of keys and one of values, in
/// pages, laid out as kernels/cpu/paged_attention.h reads them. Page ids are those of a PagePool of the
/// same size. Layers of different groups (engine/cache_groups.h) are in different pages of an array.

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "engine/cache_groups.h"
#include "engine/page_pool.h"
#include "model/costs.h"

namespace slime::engine {

class PagedKvCache {
 public:
  /// Blocks that keep a state instead (engine/state_cache.h) have nothing here. `dtype` is kFloat or
  /// kBFloat16. Memory is touched only when it is written, so an unused budget costs nothing.
  PagedKvCache(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype, int64_t num_pages,
               CacheGroups groups);
  PagedKvCache(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype, int64_t num_pages)
      : PagedKvCache(blocks, dtype, num_pages, one_group(blocks)) {}

  /// What one page takes over the layers that it has.
  static int64_t page_bytes(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype,
                            const CacheGroups& groups);
  static int64_t page_bytes(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype) {
    return page_bytes(blocks, dtype, one_group(blocks));
  }

  /// The page table that names the layer's pages.
  int64_t group_of(int layer) const { return groups_.of_layer[layer].group; }

  void* keys(int layer) const;
  void* values(int layer) const;
  /// Keys of the layer's indexer, float32 [pages, tokens of a page, index_size].
  float* index_keys(int layer) const;
  at::ScalarType dtype() const { return dtype_; }
  int64_t num_pages() const { return num_pages_; }

  /// Gives the memory back to the system: everything reads as zeros afterwards.
  void release_memory();

  /// Copies all layers that a page has (for a request that continues in the middle of a page somebody
  /// else filled).
  void copy_page(PageId from, PageId to);

 private:
  std::size_t slot_of(int layer) const;

  CacheGroups groups_;
  at::ScalarType dtype_;
  int64_t num_pages_;
  int64_t page_key_bytes_;  // of one layer
  int64_t page_value_bytes_;
  std::vector<Tensor> keys_;  // per layer of a page, flat
  std::vector<Tensor> values_;
  std::vector<Tensor> index_keys_;
};

}  // namespace slime::engine
