#include "kernels/cpu/paged_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/random.h"

namespace slime::kernels {
namespace {

/// A layer with a filled cache and the new rows of some sequences.
struct Layer {
  int64_t num_heads = 6;
  int64_t num_kv_heads = 2;
  int64_t head_dim = 24;
  FloatKind storage = FloatKind::kFloat32;
  FloatKind activations = FloatKind::kFloat32;
  int64_t window = 0;
  float cap = 0;
  bool has_norm = true;
  bool has_sinks = false;
  bool values_are_keys = false;
  std::vector<std::vector<int32_t>> pages;  // per sequence
  std::vector<PagedSequence> sequences;

  std::vector<float> qkv, keys, values, q_norm, k_norm, sinks, cos, sin, query_scratch;
  int64_t num_pages = 0;
  int64_t num_rows = 0;

  /// `lengths`: (new rows, keys) per sequence, each with pages of its own.
  explicit Layer(const std::vector<std::pair<int64_t, int64_t>>& lengths) {
    for (const auto& [rows, num_keys] : lengths) {
      std::vector<int32_t> table((num_keys + kPageTokens - 1) / kPageTokens);
      for (int32_t& page : table) page = static_cast<int32_t>(num_pages++);
      std::reverse(table.begin(), table.end());
      pages.push_back(table);
      sequences.push_back({nullptr, num_rows, rows, num_keys});
      num_rows += rows;
    }
  }

  /// float32 numbers, or as many bfloat16 ones in the lower half of the buffer.
  static std::vector<float> noise(int64_t count, uint64_t stream, FloatKind kind) {
    std::vector<float> out(count);
    auto* half = reinterpret_cast<uint16_t*>(out.data());
    for (int64_t i = 0; i < count; ++i) {
      const auto x = static_cast<float>(normal(1, stream, i));
      if (kind == FloatKind::kFloat32) {
        out[i] = x;
      } else {
        half[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
      }
    }
    return out;
  }

  void fill() {
    for (std::size_t i = 0; i < sequences.size(); ++i) sequences[i].pages = pages[i].data();
    qkv = noise(num_rows * (num_heads + 2 * num_kv_heads) * head_dim, 1, activations);
    keys = noise(num_pages * num_kv_heads * head_dim * kPageTokens, 2, storage);
    values = noise(num_pages * num_kv_heads * value_stride(head_dim) * kPageTokens, 3, storage);
    q_norm = noise(head_dim, 4, FloatKind::kFloat32);
    k_norm = noise(head_dim, 5, FloatKind::kFloat32);
    sinks = noise(num_heads, 8, FloatKind::kFloat32);
    cos = noise(512 * head_dim / 2, 6, FloatKind::kFloat32);
    sin = noise(512 * head_dim / 2, 7, FloatKind::kFloat32);
    query_scratch.assign(num_rows * num_heads * value_stride(head_dim), 0);
  }

  std::vector<float> run(bool portable) {
    const PagedPlan plan = make_paged_plan(sequences, num_heads / num_kv_heads);
    std::vector<float> out(num_rows * num_heads * head_dim);
    PagedAttentionCall call;
    call.qkv_TE = qkv.data();
    call.out_TE = out.data();
    call.activations = activations;
    call.keys = keys.data();
    call.values = values.data();
    call.storage = storage;
    call.num_heads = num_heads;
    call.num_kv_heads = num_kv_heads;
    call.head_dim = head_dim;
    call.scale = 0.2F;
    call.cap = cap;
    call.window = window;
    call.q_norm = has_norm ? q_norm.data() : nullptr;
    call.k_norm = has_norm ? k_norm.data() : nullptr;
    call.norm_eps = 1e-6F;
    call.sinks = has_sinks ? sinks.data() : nullptr;
    call.values_are_keys = values_are_keys;
    call.cos_PR = cos.data();
    call.sin_PR = sin.data();
    call.rotary_half = head_dim / 2;
    // Any rows: which keys are seen is no matter of them.
    std::vector<int64_t> rotary_row;
    for (const PagedSequence& sequence : sequences) {
      for (int64_t i = sequence.num_keys - sequence.num_rows; i < sequence.num_keys; ++i)
        rotary_row.push_back((i * 37 + 11) % 512);
    }
    call.rotary_row_T = rotary_row.data();
    call.query_scratch = query_scratch.data();
    call.plan = &plan;
    if (portable) {
      paged_attention_portable(call);
    } else {
      paged_attention(call);
    }
    if (activations == FloatKind::kBFloat16) {
      const auto* half = reinterpret_cast<const uint16_t*>(out.data());
      std::vector<float> wide(out.size());
      for (std::size_t i = 0; i < wide.size(); ++i)
        wide[i] = std::bit_cast<float>(uint32_t{half[i]} << 16);
      return wide;
    }
    return out;
  }
};

void expect_twins(Layer layer, float tolerance) {
  layer.fill();
  const auto fast = layer.run(false);
  layer.fill();
  const auto slow = layer.run(true);
  ASSERT_EQ(fast.size(), slow.size());
  for (std::size_t i = 0; i < fast.size(); ++i)
    ASSERT_NEAR(fast[i], slow[i], tolerance) << "number " << i;
}

TEST(PagedAttention, EqualsItsPlainTwinWithSinks) {
  Layer layer({{1, 1}, {129, 129}, {1, 200}});
  layer.has_sinks = true;
  expect_twins(layer, 2e-5F);
  layer.window = 20;
  expect_twins(layer, 2e-5F);
}

TEST(PagedAttention, ASinkAsLargeAsAllScoresTogetherHalvesTheOutput) {
  Layer layer({{1, 1}});
  layer.fill();
  const auto plain = layer.run(false);
  layer.has_sinks = true;
  layer.fill();
  // One key: its score is all of them. Found from the outputs of a sink of zero.
  std::fill(layer.sinks.begin(), layer.sinks.end(), 0.0F);
  const auto with_zero = layer.run(false);
  for (int64_t head = 0; head < layer.num_heads; ++head) {
    const float share = with_zero[head * layer.head_dim] / plain[head * layer.head_dim];
    layer.sinks[head] = std::log(share / (1 - share));
  }
  const auto halved = layer.run(false);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(halved[i], plain[i] / 2, 1e-4F);
}

TEST(PagedAttention, EqualsItsPlainTwinWhereValuesAreKeys) {
  for (const FloatKind storage : {FloatKind::kFloat32, FloatKind::kBFloat16}) {
    Layer layer({{1, 1}, {1, 127}, {129, 129}, {7, 200}});
    layer.values_are_keys = true;
    layer.has_norm = false;
    layer.num_heads = 5;
    layer.num_kv_heads = 1;
    layer.head_dim = 30;
    layer.storage = storage;
    expect_twins(layer, storage == FloatKind::kFloat32 ? 5e-5F : 5e-3F);
  }
}

TEST(PagedAttention, EqualsItsPlainTwinForRaggedDecodeAndPrefill) {
  expect_twins(Layer({{1, 1}, {1, 127}, {1, 128}, {1, 129}, {1, 16}}), 2e-5F);
  expect_twins(Layer({{1, 5}, {129, 129}, {40, 170}, {1, 64}, {1, 65}, {17, 17}}), 2e-5F);
}

TEST(PagedAttention, EqualsItsPlainTwinForOtherShapes) {
  for (const auto& [heads, kv_heads, head_dim] :
       {std::tuple{9, 3, 64}, {4, 4, 12}, {8, 1, 32}, {14, 2, 128}}) {
    Layer layer({{1, 100}, {70, 90}});
    layer.num_heads = heads;
    layer.num_kv_heads = kv_heads;
    layer.head_dim = head_dim;
    layer.has_norm = false;
    expect_twins(layer, 5e-5F);
  }
}

TEST(PagedAttention, SeesOnlyTheWindow) {
  for (const int64_t window : {1, 16, 64, 70}) {
    Layer layer({{1, 200}, {150, 150}, {30, 130}});
    layer.window = window;
    expect_twins(layer, 2e-5F);
  }
}

TEST(PagedAttention, EqualsItsPlainTwinWithCappedScores) {
  for (const float cap : {0.5F, 3.0F, 50.0F}) {
    Layer layer({{1, 1}, {129, 129}, {1, 200}, {40, 130}});
    layer.cap = cap;
    expect_twins(layer, 2e-5F);
    layer.window = 20;
    layer.has_sinks = true;
    expect_twins(layer, 2e-5F);
  }
}

TEST(PagedAttention, OfCappedScoresHasTheSameBitsInChunks) {
  Layer layer({{1, 100}, {70, 90}});
  layer.cap = 2;
  layer.fill();
  const auto together = layer.run(false);
  Layer alone = layer;
  alone.fill();
  alone.sequences = {alone.sequences[0]};
  alone.num_rows = 1;
  const auto out = alone.run(false);
  EXPECT_TRUE(std::equal(out.begin(), out.end(), together.begin()));
}

TEST(PagedAttention, StoresAndReadsBfloat16) {
  Layer layer({{1, 100}, {50, 90}});
  layer.storage = FloatKind::kBFloat16;
  expect_twins(layer, 2e-3F);  // a rounding of a stored key or value may go either way
  layer.activations = FloatKind::kBFloat16;
  expect_twins(layer, 3e-2F);
}

TEST(PagedAttention, SharedPrefixIsReadOnceWithTheSameBits) {
  Layer layer({{1, 170}, {1, 140}, {1, 200}, {1, 90}});
  // The first three share the pages of their first 128 tokens.
  for (int i : {1, 2}) std::copy_n(layer.pages[0].begin(), 8, layer.pages[i].begin());
  layer.fill();
  const PagedPlan plan = make_paged_plan(layer.sequences, 3);
  ASSERT_EQ(plan.tiles.size(), 2U);
  EXPECT_EQ(plan.tiles[0].num_sequences, 3);
  EXPECT_EQ(plan.tiles[0].num_shared_blocks, 2);
  const auto together = layer.run(false);
  const int64_t row_size = layer.num_heads * layer.head_dim;
  const int64_t qkv_size = (layer.num_heads + 2 * layer.num_kv_heads) * layer.head_dim;
  for (int64_t i = 0; i < 4; ++i) {
    Layer alone = layer;
    alone.fill();
    alone.sequences = {alone.sequences[i]};
    alone.sequences[0].first_row = 0;
    alone.num_rows = 1;
    alone.qkv.assign(layer.qkv.begin() + i * qkv_size, layer.qkv.begin() + (i + 1) * qkv_size);
    const auto out = alone.run(false);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), together.begin() + i * row_size))
        << "sequence " << i;
  }
}

TEST(PagedAttention, ChunksOfAPromptGiveTheBitsOfTheWhole) {
  Layer layer({{150, 150}});
  layer.fill();
  const auto whole = layer.run(false);
  const int64_t row_size = layer.num_heads * layer.head_dim;
  const int64_t qkv_size = (layer.num_heads + 2 * layer.num_kv_heads) * layer.head_dim;
  Layer chunked = layer;
  chunked.fill();
  const auto qkv = chunked.qkv;
  for (int64_t begin = 0; begin < 150;) {
    const int64_t end = begin == 0 ? 37 : std::min<int64_t>(150, begin + 1 + begin / 3);
    chunked.sequences[0].num_rows = chunked.num_rows = end - begin;
    chunked.sequences[0].num_keys = end;
    chunked.qkv.assign(qkv.begin() + begin * qkv_size, qkv.begin() + end * qkv_size);
    const auto out = chunked.run(false);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), whole.begin() + begin * row_size))
        << "from " << begin;
    begin = end;
  }
}

}  // namespace
}  // namespace slime::kernels
