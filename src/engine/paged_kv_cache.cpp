#include "engine/paged_kv_cache.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <span>

#include "core/error.h"
#include "core/out_of_memory.h"
#include "engine/cache_shape.h"
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

/// The huge pages that lie wholly inside `bytes` bytes from `memory` on.
std::span<std::byte> whole_pages(void* memory, int64_t bytes) {
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  const auto start = reinterpret_cast<uintptr_t>(memory);
  const auto begin = (start + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (start + static_cast<uintptr_t>(bytes)) / kHugePage * kHugePage;
  if (begin >= end) return {};
  return {reinterpret_cast<std::byte*>(begin), end - begin};
}

/// Bytes that read as zeros and are mapped on first write; in huge pages, where there are some:
/// decoding reads all over them.
Tensor zeros_on_demand(int64_t count, int64_t size) {
  if (size == 0) return at::empty({0}, at::TensorOptions(at::kByte));
  void* memory = std::calloc(count, size);
  if (memory == nullptr)
    throw OutOfMemory(fmt::format("no room for {:.2f} GiB of keys or values of a layer",
                                  static_cast<double>(count * size) / (int64_t{1} << 30)));
  const auto pages = whole_pages(memory, count * size);
  // A wish: what the system answers changes nothing here.
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_HUGEPAGE);
  return at::from_blob(memory, {count * size}, std::free, at::TensorOptions(at::kByte));
}

}  // namespace

int64_t PagedKvCache::page_bytes(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype) {
  const model::CacheSpec cache = common_cache(blocks);
  int64_t index_numbers = 0;
  for (const model::BlockNeeds& block : blocks)
    index_numbers += block.cache.index_size * kernels::kPageTokens;
  return static_cast<int64_t>(blocks.size()) * (key_numbers(cache) + value_numbers(cache)) *
             static_cast<int64_t>(c10::elementSize(dtype)) +
         index_numbers * static_cast<int64_t>(sizeof(float));
}

PagedKvCache::PagedKvCache(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype,
                           int64_t num_pages)
    : dtype_(dtype), num_pages_(num_pages) {
  check(dtype == at::kFloat || dtype == at::kBFloat16,
        "keys and values are stored as float32 or bfloat16");
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const model::CacheSpec cache = common_cache(blocks);
  page_key_bytes_ = key_numbers(cache) * element;
  page_value_bytes_ = value_numbers(cache) * element;
  for (std::size_t layer = 0; layer < blocks.size(); ++layer) {
    keys_.push_back(zeros_on_demand(num_pages, page_key_bytes_));
    values_.push_back(zeros_on_demand(num_pages, page_value_bytes_));
    index_keys_.push_back(zeros_on_demand(
        num_pages, blocks[layer].cache.index_size * kernels::kPageTokens *
                       static_cast<int64_t>(sizeof(float))));
  }
}

void* PagedKvCache::keys(int layer) const { return keys_[layer].data_ptr(); }
void* PagedKvCache::values(int layer) const { return values_[layer].data_ptr(); }

float* PagedKvCache::index_keys(int layer) const {
  return static_cast<float*>(index_keys_[layer].data_ptr());
}

void PagedKvCache::release_memory() {
  for (const auto* tensors : {&keys_, &values_, &index_keys_}) {
    for (const Tensor& tensor : *tensors) {
      const auto pages = whole_pages(tensor.data_ptr(), static_cast<int64_t>(tensor.nbytes()));
      if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_DONTNEED);
    }
  }
}

void PagedKvCache::copy_page(PageId from, PageId to) {
  for (std::size_t layer = 0; layer < keys_.size(); ++layer) {
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
