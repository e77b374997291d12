#include "engine/paged_kv_cache.h"

#include <ATen/ATen.h>

#include <cstring>
#include <utility>

#include "core/error.h"
#include "engine/cache_shape.h"
#include "engine/memory_on_demand.h"
#include "kernels/cpu/paged_attention.h"

namespace slime::engine {
namespace {

/// None where values are a part of the keys: these lie as values do then.
int64_t key_numbers(const model::CacheSpec& cache) {
  return cache.value_size == 0 ? 0 : cache.heads * cache.key_size * kernels::kPageTokens;
}

int64_t value_numbers(const model::CacheSpec& cache) {
  const int64_t size = cache.value_size == 0 ? cache.key_size : cache.value_size;
  return cache.heads * kernels::value_stride(size) * kernels::kPageTokens;
}

}  // namespace

int64_t PagedKvCache::page_bytes(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype,
                                 const CacheGroups& groups) {
  const model::CacheSpec cache = cache_of_tokens(blocks);
  int64_t index_numbers = 0;
  for (const model::BlockNeeds& block : blocks)
    index_numbers += block.cache.index_size * kernels::kPageTokens;
  return groups.num_slots * (key_numbers(cache) + value_numbers(cache)) *
             static_cast<int64_t>(c10::elementSize(dtype)) +
         index_numbers * static_cast<int64_t>(sizeof(float));
}

PagedKvCache::PagedKvCache(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype,
                           int64_t num_pages, CacheGroups groups)
    : groups_(std::move(groups)), dtype_(dtype), num_pages_(num_pages) {
  check(dtype == at::kFloat || dtype == at::kBFloat16,
        "keys and values are stored as float32 or bfloat16");
  check(groups_.num_groups == 1 || index_size(blocks) == 0, "layers with indexers are one group");
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const model::CacheSpec cache = cache_of_tokens(blocks);
  page_key_bytes_ = key_numbers(cache) * element;
  page_value_bytes_ = value_numbers(cache) * element;
  for (int64_t slot = 0; slot < groups_.num_slots; ++slot) {
    keys_.push_back(zeros_on_demand(num_pages, page_key_bytes_, "keys"));
    values_.push_back(zeros_on_demand(num_pages, page_value_bytes_, "values"));
  }
  index_keys_.resize(keys_.size());
  for (std::size_t layer = 0; layer < blocks.size(); ++layer) {
    const int64_t size = blocks[layer].cache.index_size;
    if (size == 0) continue;
    index_keys_[slot_of(static_cast<int>(layer))] = zeros_on_demand(
        num_pages, size * kernels::kPageTokens * static_cast<int64_t>(sizeof(float)),
        "keys of an indexer");
  }
}

std::size_t PagedKvCache::slot_of(int layer) const {
  const int64_t slot = groups_.of_layer[static_cast<std::size_t>(layer)].slot;
  check(slot >= 0, "a layer with keys and values has a place in pages");
  return static_cast<std::size_t>(slot);
}

void* PagedKvCache::keys(int layer) const { return keys_[slot_of(layer)].data_ptr(); }
void* PagedKvCache::values(int layer) const { return values_[slot_of(layer)].data_ptr(); }

float* PagedKvCache::index_keys(int layer) const {
  return static_cast<float*>(index_keys_[slot_of(layer)].data_ptr());
}

void PagedKvCache::release_memory() {
  for (const auto* tensors : {&keys_, &values_, &index_keys_}) {
    for (const Tensor& tensor : *tensors)
      if (tensor.defined()) give_back_memory(tensor);
  }
}

void PagedKvCache::copy_page(PageId from, PageId to) {
  for (std::size_t slot = 0; slot < keys_.size(); ++slot) {
    auto* keys = static_cast<std::byte*>(keys_[slot].data_ptr());
    auto* values = static_cast<std::byte*>(values_[slot].data_ptr());
    if (page_key_bytes_ > 0)
      std::memcpy(keys + to * page_key_bytes_, keys + from * page_key_bytes_, page_key_bytes_);
    std::memcpy(values + to * page_value_bytes_, values + from * page_value_bytes_,
                page_value_bytes_);
    if (!index_keys_[slot].defined()) continue;
    const int64_t index_bytes = static_cast<int64_t>(index_keys_[slot].nbytes()) / num_pages_;
    auto* index = static_cast<std::byte*>(index_keys_[slot].data_ptr());
    std::memcpy(index + to * index_bytes, index + from * index_bytes, index_bytes);
  }
}

}  // namespace slime::engine
