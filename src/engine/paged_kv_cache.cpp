#include "engine/paged_kv_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

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

int64_t PagedKvCache::page_bytes(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype) {
  const model::CacheSpec cache = cache_of_tokens(blocks);
  int64_t index_numbers = 0;
  for (const model::BlockNeeds& block : blocks)
    index_numbers += block.cache.index_size * kernels::kPageTokens;
  return std::ranges::count_if(blocks, keeps_tokens) * (key_numbers(cache) + value_numbers(cache)) *
             static_cast<int64_t>(c10::elementSize(dtype)) +
         index_numbers * static_cast<int64_t>(sizeof(float));
}

PagedKvCache::PagedKvCache(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype,
                           int64_t num_pages)
    : dtype_(dtype), num_pages_(num_pages) {
  check(dtype == at::kFloat || dtype == at::kBFloat16,
        "keys and values are stored as float32 or bfloat16");
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const model::CacheSpec cache = cache_of_tokens(blocks);
  page_key_bytes_ = key_numbers(cache) * element;
  page_value_bytes_ = value_numbers(cache) * element;
  for (const model::BlockNeeds& block : blocks) {
    const bool has_pages = keeps_tokens(block);
    keys_.push_back(zeros_on_demand(num_pages, has_pages ? page_key_bytes_ : 0, "keys"));
    values_.push_back(zeros_on_demand(num_pages, has_pages ? page_value_bytes_ : 0, "values"));
    index_keys_.push_back(zeros_on_demand(
        num_pages,
        block.cache.index_size * kernels::kPageTokens * static_cast<int64_t>(sizeof(float)),
        "keys of an indexer"));
  }
}

void* PagedKvCache::keys(int layer) const { return keys_[layer].data_ptr(); }
void* PagedKvCache::values(int layer) const { return values_[layer].data_ptr(); }

float* PagedKvCache::index_keys(int layer) const {
  return static_cast<float*>(index_keys_[layer].data_ptr());
}

void PagedKvCache::release_memory() {
  for (const auto* tensors : {&keys_, &values_, &index_keys_}) {
    for (const Tensor& tensor : *tensors) give_back_memory(tensor);
  }
}

void PagedKvCache::copy_page(PageId from, PageId to) {
  for (std::size_t layer = 0; layer < keys_.size(); ++layer) {
    if (values_[layer].numel() == 0) continue;  // a layer that keeps a state
    auto* keys = static_cast<std::byte*>(keys_[layer].data_ptr());
    auto* values = static_cast<std::byte*>(values_[layer].data_ptr());
    if (page_key_bytes_ > 0)
      std::memcpy(keys + to * page_key_bytes_, keys + from * page_key_bytes_, page_key_bytes_);
    std::memcpy(values + to * page_value_bytes_, values + from * page_value_bytes_,
                page_value_bytes_);
    const int64_t index_bytes = static_cast<int64_t>(index_keys_[layer].nbytes()) / num_pages_;
    auto* index = static_cast<std::byte*>(index_keys_[layer].data_ptr());
    if (index_bytes > 0)
      std::memcpy(index + to * index_bytes, index + from * index_bytes, index_bytes);
  }
}

}  // namespace slime::engine
