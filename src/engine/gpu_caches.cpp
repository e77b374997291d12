#include "engine/gpu_caches.h"

#include <algorithm>

#include "core/divide_up.h"
#include "core/error.h"
#include "engine/cache_shape.h"
#include "kernels/page.h"

namespace slime::engine {
namespace {

using kernels::kPageTokens;

int64_t layers_with_indexer(std::span<const model::BlockNeeds> blocks) {
  return std::ranges::count_if(
      blocks, [](const model::BlockNeeds& block) { return block.cache.index_size > 0; });
}

/// Float32 keys of indexers, of a page in all layers.
int64_t index_page_bytes(std::span<const model::BlockNeeds> blocks) {
  return layers_with_indexer(blocks) * index_size(blocks) * kPageTokens *
         static_cast<int64_t>(sizeof(float));
}

/// Keys and values of all pages and the spare one.
int64_t cache_bytes(const model::Network& network, const StepRunnerConfig& step) {
  const int64_t page = gpu_page_bytes(network.blocks(), step.kv_dtype, groups_of(network, step));
  return (page - index_page_bytes(network.blocks())) * (step.num_pages + 1);
}

/// Where the keys of indexers begin, behind keys and values.
int64_t index_offset(const model::Network& network, const StepRunnerConfig& step) {
  return round_up(cache_bytes(network, step), int64_t{256});
}

/// Where the states begin, behind all keys and values.
int64_t states_offset(const model::Network& network, const StepRunnerConfig& step) {
  return round_up(
      index_offset(network, step) + index_page_bytes(network.blocks()) * (step.num_pages + 1),
      int64_t{256});
}

}  // namespace

int64_t gpu_page_bytes(std::span<const model::BlockNeeds> blocks, at::ScalarType dtype,
                       const CacheGroups& groups) {
  const model::CacheSpec cache = cache_of_tokens(blocks);
  if (cache.value_size != 0 && cache.value_size != cache.key_size)
    throw ConfigError("on a GPU the engine holds keys and values of one size");
  return groups.num_slots * kPageTokens * cache.numbers_per_token() *
             static_cast<int64_t>(c10::elementSize(dtype)) +
         index_page_bytes(blocks);
}

CacheGroups groups_of(const model::Network& network, const StepRunnerConfig& step) {
  return cache_groups(network.blocks(), network.config().window, step.num_window_groups);
}

int64_t memory_bytes(const model::Network& network, const StepRunnerConfig& step) {
  return states_offset(network, step) + state_bytes(network.blocks()) * step.num_states;
}

Tensor states_of(const model::Network& network, const StepRunnerConfig& step,
                 const kernels::GpuMemory& memory) {
  if (step.num_states == 0) return {};
  const int64_t numbers = state_bytes(network.blocks()) / static_cast<int64_t>(sizeof(float));
  return memory.view(states_offset(network, step), {step.num_states, numbers}, at::kFloat);
}

Tensor cache_half(const model::Network& network, const StepRunnerConfig& step,
                  const kernels::GpuMemory& memory, int half) {
  const model::CacheSpec cache = cache_of_tokens(network.blocks());
  if (cache.value_size == 0 && half == 1) return {};
  return memory.view(half * cache_bytes(network, step) / 2,
                     {groups_of(network, step).num_slots, step.num_pages + 1, cache.heads,
                      kPageTokens, cache.key_size},
                     step.kv_dtype);
}

Tensor index_keys_of(const model::Network& network, const StepRunnerConfig& step,
                     const kernels::GpuMemory& memory) {
  const int64_t layers = layers_with_indexer(network.blocks());
  if (layers == 0) return {};
  return memory.view(index_offset(network, step),
                     {layers, step.num_pages + 1, kPageTokens, index_size(network.blocks())},
                     at::kFloat);
}

}  // namespace slime::engine
