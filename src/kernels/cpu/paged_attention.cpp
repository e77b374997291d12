#include "kernels/cpu/paged_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vector_avx2.h"

namespace slime::kernels {
namespace {

constexpr int64_t kTileRows = 48;  // query rows of one tile: queries times G

/// Blocks whose pages are the same in both.
int64_t common_blocks(const PagedSequence& a, const PagedSequence& b) {
  const int64_t limit = std::min(a.num_keys, b.num_keys) / kBlockTokens;
  int64_t blocks = 0;
  while (blocks < limit &&
         std::equal(a.pages + blocks * kBlockPages, a.pages + (blocks + 1) * kBlockPages,
                    b.pages + blocks * kBlockPages)) {
    ++blocks;
  }
  return blocks;
}

float to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// Round to nearest even, as ATen does.
uint16_t to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float get(const void* base, FloatKind kind, int64_t index) {
  return kind == FloatKind::kFloat32 ? static_cast<const float*>(base)[index]
                                     : to_float(static_cast<const uint16_t*>(base)[index]);
}

void put(void* base, FloatKind kind, int64_t index, float value) {
  if (kind == FloatKind::kFloat32) {
    static_cast<float*>(base)[index] = value;
  } else {
    static_cast<uint16_t*>(base)[index] = to_bfloat16(value);
  }
}

/// Calls body(tile, kv_head) for all pairs, each thread a contiguous run of about equal cost.
template <typename Body>
void for_each_item(const PagedAttentionCall& call, const Body& body) {
  const PagedPlan& plan = *call.plan;
  const int64_t num_shards = std::min<int64_t>(
      cpu::num_threads(), static_cast<int64_t>(plan.tiles.size()) * call.num_kv_heads);
  const double shard_cost =
      plan.total_cost * static_cast<double>(call.num_kv_heads) / static_cast<double>(num_shards);
  cpu::parallel_chunks(num_shards, [&](int64_t own_shard) {
    double done = 0;
    for (const PagedPlan::Tile& tile : plan.tiles) {
      for (int64_t kv_head = 0; kv_head < call.num_kv_heads; ++kv_head) {
        const auto shard =
            std::min(num_shards - 1, static_cast<int64_t>((done + tile.cost / 2) / shard_cost));
        done += tile.cost;
        if (shard == own_shard) body(tile, kv_head);
      }
    }
  });
}

}  // namespace

PagedPlan make_paged_plan(std::vector<PagedSequence> sequences, int64_t queries_per_key) {
  PagedPlan plan;
  plan.sequences = std::move(sequences);
  plan.single_rows_only = true;
  const auto num_sequences = static_cast<int32_t>(plan.sequences.size());
  const auto max_queries = static_cast<int32_t>(std::max<int64_t>(1, kTileRows / queries_per_key));
  for (int32_t first = 0; first < num_sequences;) {
    const PagedSequence& sequence = plan.sequences[first];
    if (sequence.num_rows > 1) {
      plan.single_rows_only = false;
      for (int32_t row = 0; row < sequence.num_rows; row += max_queries) {
        PagedPlan::Tile tile{.first_sequence = first, .first_row = row};
        tile.num_rows =
            std::min<int32_t>(max_queries, static_cast<int32_t>(sequence.num_rows) - row);
        tile.cost = static_cast<double>(tile.num_rows) *
                    static_cast<double>(sequence.num_keys - sequence.num_rows + row +
                                        tile.num_rows + kBlockTokens);
        plan.tiles.push_back(tile);
      }
      ++first;
      continue;
    }
    PagedPlan::Tile tile{.first_sequence = first};
    while (tile.num_sequences < max_queries && first + tile.num_sequences < num_sequences) {
      const PagedSequence& next = plan.sequences[first + tile.num_sequences];
      if (next.num_rows != 1) break;
      int64_t shared = common_blocks(sequence, next);
      if (tile.num_sequences > 1) shared = std::min(shared, tile.num_shared_blocks);
      if (shared == 0 || shared < tile.num_shared_blocks) break;
      tile.num_shared_blocks = shared;
      ++tile.num_sequences;
    }
    for (int32_t i = 0; i < tile.num_sequences; ++i) {
      tile.cost += static_cast<double>(plan.sequences[first + i].num_keys + kBlockTokens);
    }
    plan.tiles.push_back(tile);
    first += tile.num_sequences;
  }
  for (const PagedPlan::Tile& tile : plan.tiles) plan.total_cost += tile.cost;
  return plan;
}

void paged_attention(const PagedAttentionCall& call) {
  if (call.plan->tiles.empty()) return;
  if (!has_avx2()) return paged_attention_portable(call);
  if (call.plan->single_rows_only) {
    for_each_item(call, [&](const PagedPlan::Tile& tile, int64_t kv_head) {
      paged_prepare_avx2(call, tile, kv_head);
      paged_attend_avx2(call, tile, kv_head);
    });
    return;
  }
  // A tile of a long chunk sees keys that other tiles write.
  prepare_pages(call);
  attend_prepared_pages(call);
}

void prepare_pages(const PagedAttentionCall& call) {
  for_each_item(call, [&](const PagedPlan::Tile& tile, int64_t kv_head) {
    paged_prepare_avx2(call, tile, kv_head);
  });
}

void attend_prepared_pages(const PagedAttentionCall& call) {
  for_each_item(call, [&](const PagedPlan::Tile& tile, int64_t kv_head) {
    paged_attend_avx2(call, tile, kv_head);
  });
}

void paged_attention_portable(const PagedAttentionCall& call) {
  const int64_t head_dim = call.head_dim;
  const int64_t group = call.num_heads / call.num_kv_heads;
  const int64_t qkv_stride = call.row_size();
  const int64_t stride = value_stride(head_dim);
  const auto key_at = [&](int32_t page, int64_t head, int64_t dim, int64_t slot) {
    return ((page * call.num_kv_heads + head) * head_dim + dim) * kPageTokens + slot;
  };
  const auto value_at = [&](int32_t page, int64_t head, int64_t slot, int64_t dim) {
    return ((page * call.num_kv_heads + head) * kPageTokens + slot) * stride + dim;
  };
  // Head `head` of the fused projection of `row`, normed and rotated.
  const auto normed_rotated = [&](int64_t row, int64_t head, int64_t angle, const float* norm) {
    std::vector<float> x(head_dim);
    for (int64_t d = 0; d < head_dim; ++d)
      x[d] = get(call.qkv_TE, call.activations, row * qkv_stride + head * head_dim + d);
    if (norm != nullptr) {
      float sum = 0;
      for (const float value : x) sum += value * value;
      const float factor = 1.0F / std::sqrt(sum / static_cast<float>(head_dim) + call.norm_eps);
      for (int64_t d = 0; d < head_dim; ++d) x[d] *= factor * norm[d];
    }
    for (int64_t r = 0; r < call.rotary_half; ++r) {
      const float cos = call.cos_PR[angle * call.rotary_half + r];
      const float sin = call.sin_PR[angle * call.rotary_half + r];
      const float first = x[r];
      const float second = x[r + call.rotary_half];
      x[r] = first * cos - second * sin;
      x[r + call.rotary_half] = second * cos + first * sin;
    }
    if (call.activations == FloatKind::kBFloat16)
      for (float& value : x) value = to_float(to_bfloat16(value));
    return x;
  };
  for (const PagedSequence& sequence : call.plan->sequences) {
    for (int64_t i = 0; i < sequence.num_rows; ++i) {
      const int64_t row = sequence.first_row + i;
      const int64_t position = sequence.num_keys - sequence.num_rows + i;
      const int64_t angle = call.rotary_row_T[row];
      const int32_t page = sequence.pages[position / kPageTokens];
      for (int64_t head = 0; head < call.num_kv_heads; ++head) {
        const auto key = normed_rotated(row, call.num_heads + head, angle, call.k_norm);
        for (int64_t d = 0; d < head_dim; ++d) {
          if (call.values_are_keys) {
            put(call.values, call.storage, value_at(page, head, position % kPageTokens, d), key[d]);
            continue;
          }
          put(call.keys, call.storage, key_at(page, head, d, position % kPageTokens), key[d]);
          const int64_t from =
              row * qkv_stride + (call.num_heads + call.num_kv_heads + head) * head_dim + d;
          put(call.values, call.storage, value_at(page, head, position % kPageTokens, d),
              get(call.qkv_TE, call.activations, from));
        }
      }
    }
  }
  for (const PagedSequence& sequence : call.plan->sequences) {
    for (int64_t i = 0; i < sequence.num_rows; ++i) {
      const int64_t row = sequence.first_row + i;
      const int64_t position = sequence.num_keys - sequence.num_rows + i;
      const int64_t angle = call.rotary_row_T[row];
      const int64_t first_key =
          call.window > 0 ? std::max<int64_t>(0, position - call.window + 1) : 0;
      const uint8_t* chosen = call.chosen_T == nullptr ? nullptr : call.chosen_T[row];
      for (int64_t head = 0; head < call.num_heads; ++head) {
        const auto query = normed_rotated(row, head, angle, call.q_norm);
        std::vector<float> weight(position + 1, 0.0F);
        float largest =
            call.sinks != nullptr ? call.sinks[head] : -std::numeric_limits<float>::infinity();
        for (int64_t k = first_key; k <= position; ++k) {
          if (chosen != nullptr && chosen[k] == 0) {
            weight[k] = -std::numeric_limits<float>::infinity();
            continue;
          }
          const int32_t page = sequence.pages[k / kPageTokens];
          const int64_t slot = k % kPageTokens;
          for (int64_t d = 0; d < head_dim; ++d) {
            const float key =
                call.values_are_keys
                    ? get(call.values, call.storage, value_at(page, head / group, slot, d))
                    : get(call.keys, call.storage, key_at(page, head / group, d, slot));
            weight[k] += query[d] * call.scale * key;
          }
          if (call.cap > 0) weight[k] = call.cap * std::tanh(weight[k] / call.cap);
          largest = std::max(largest, weight[k]);
        }
        float sum = call.sinks != nullptr ? std::exp(call.sinks[head] - largest) : 0;
        for (int64_t k = first_key; k <= position; ++k)
          sum += weight[k] = std::exp(weight[k] - largest);
        if (call.logsumexp_TN != nullptr)
          call.logsumexp_TN[row * call.num_heads + head] = largest + std::log(sum);
        for (int64_t d = 0; d < head_dim; ++d) {
          float out = 0;
          for (int64_t k = first_key; k <= position; ++k) {
            out += weight[k] *
                   get(call.values, call.storage,
                       value_at(sequence.pages[k / kPageTokens], head / group, k % kPageTokens, d));
          }
          put(call.out_TE, call.activations, (row * call.num_heads + head) * head_dim + d,
              out / sum);
        }
      }
    }
  }
}

}  // namespace slime::kernels
