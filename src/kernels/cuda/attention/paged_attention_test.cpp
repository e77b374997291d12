/// Paged attention on the GPU. One file because its tests share the made-up batch and its twin.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kernels/cuda/attention/attend_last_rows_for_tests.h"
#include "kernels/cuda/attention/paged_tables_for_tests.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/gpu/decode_launch.h"
#include "kernels/gpu/paged_units.h"

namespace slime::kernels {
namespace {

TEST(PagedAttentionTwin, IsTheEndOfTheTwinOfTheWholeSequence) {
  const RotaryShape heads{6, 2, 24, 0};
  const Tensor x = numbers({129, int64_t{10} * 24}, at::kFloat);
  for (const auto& [window, cap] : {std::pair{0, 0.0}, {1, 0.0}, {40, 0.0}, {40, 0.8}}) {
    for (const int64_t rows : {1, 16, 129}) {
      const auto head_range = [&](int64_t first, int64_t count) {
        return x.narrow(1, first * 24, count * 24);
      };
      const TreeAttentionShape shape{0.2, window, cap};
      Tensor logsumexp;
      const Tensor whole = twin().tree_attention(wide(x), {{0, 129, -1}}, heads, shape, logsumexp);
      const Tensor end = attend_last_rows(head_range(0, 6).narrow(0, 129 - rows, rows),
                                          head_range(6, 2).reshape({129, 2, 24}),
                                          head_range(8, 2).reshape({129, 2, 24}), heads, shape);
      EXPECT_LT(relative_error(end, whole.narrow(0, 129 - rows, rows)), 1e-14);
    }
  }
}

/// The bits of a tensor: numbers that are no numbers are equal to themselves.
Tensor bits_of(const Tensor& x) { return x.contiguous().view(at::kByte); }

/// Sequences whose earlier keys are in scattered pages and whose new rows are still to come.
struct PagedCase {
  RotaryShape heads;
  TreeAttentionShape attention;
  at::ScalarType type = at::kBFloat16;
  bool is_fp8 = false;  // the cache; the twin then reads what the cache can hold
  std::vector<PagedSpan> spans;
  int64_t padding = 0;  // rows of a recorded step that belong to nobody
  // Sequences in a row, `samples` of them, begin with the same pages.
  int64_t samples = 1;
  int64_t shared_pages = 0;
  // Without these the new rows are what they are: cosine 1, sine 0.
  bool is_normed = false;
  bool has_float_norms = false;
  bool is_rotated = false;
  bool has_twin = true;  // otherwise nothing is expected
  bool packs = false;    // long prompts go to packed attention
  bool splits_keys = false;
  bool has_sinks = false;
  bool verifies_drafts = false;  // each row is a sequence: those of a span see each other's keys

  Tensor qkv_TE, positions_T, q_norm_D, k_norm_D, cos_PR, sin_PR, sinks_N, keys, values,
      expected_TC;
  PagedBatch batch;
  int64_t most_members = 0;  // of a segment

  void build() {
    const int64_t dim = heads.head_dim, kv = heads.num_kv_heads, q = heads.num_heads;
    int64_t rows = 0, num_pages = 0, longest = 1;
    for (const PagedSpan& span : spans) {
      rows += span.num_rows;
      num_pages += (span.num_keys + 15) / 16;
      longest = std::max(longest, span.num_keys);
    }
    const Tensor order = at::randperm(num_pages, at::TensorOptions(at::kLong));
    const auto pages_on_cpu = [&] {
      return at::randn({num_pages + 1, kv, 16, dim}, at::TensorOptions(at::kFloat)).to(type);
    };
    const Tensor cpu_keys = cached(pages_on_cpu()), cpu_values = cached(pages_on_cpu());
    const Tensor qkv =
        at::randn({rows + padding, (q + 2 * kv) * dim}, at::TensorOptions(at::kFloat)).to(type);
    const Tensor made = norm_and_rotate(qkv, longest);
    Tensor sinks;
    if (has_sinks) sinks = (2 * at::randn({q}, at::TensorOptions(at::kFloat))).to(type);
    sinks_N = to_gpu(sinks);

    PagedTables tables;
    std::vector<Tensor> expected;
    int64_t row = 0, page = 0;
    for (size_t s = 0; s < spans.size(); ++s) {
      const PagedSpan& span = spans[s];
      const int64_t leader = tables.page_starts[static_cast<int64_t>(s) / samples * samples];
      const int64_t num_mine = (span.num_keys + 15) / 16;
      std::vector<int64_t> ids;
      for (int64_t p = 0; p < num_mine; ++p)
        ids.push_back(order[(p < shared_pages ? leader : page) + p].item<int64_t>());
      verifies_drafts ? tables.add_rows(span, ids) : tables.add(span, ids);
      const Tensor mine = made.narrow(0, row, span.num_rows), id_P = at::tensor(ids);
      row += span.num_rows;
      page += num_mine;
      if (!has_twin) continue;
      // [P, KV, 16, D] as [K, KV, D], with the new rows at their positions.
      const auto all_keys = [&](const Tensor& old, int64_t first_head) {
        const Tensor rows_KVD =
            old.index_select(0, id_P).transpose(1, 2).reshape({num_mine * 16, kv, dim});
        const Tensor added = mine.narrow(1, first_head * dim, kv * dim).view({-1, kv, dim});
        return at::cat({rows_KVD.narrow(0, 0, span.num_keys - span.num_rows), cached(added)});
      };
      const Tensor queries = mine.narrow(1, 0, q * dim).to(type);
      expected.push_back(attend_last_rows(queries, all_keys(cpu_keys, q),
                                          all_keys(cpu_values, q + kv), heads, attention, sinks));
    }
    if (has_twin) expected_TC = at::cat(expected);
    tables.pad(padding, num_pages);
    qkv_TE = qkv.to(at::kCUDA);
    positions_T = batch.index_T = to_gpu(tables.positions, at::kLong);
    const auto cache_type = is_fp8 ? at::kFloat8_e4m3fn : type;
    keys = cpu_keys.to(cache_type).to(at::kCUDA);
    values = cpu_values.to(cache_type).to(at::kCUDA);
    tables.copy_to(batch);
    plan(tables);
  }

  /// Fills the tables and weights; the rows as the twin norms and rotates them, not rounded yet.
  Tensor norm_and_rotate(const Tensor& qkv, int64_t num_positions) {
    const int64_t dim = heads.head_dim;
    const at::TensorOptions floats(at::kFloat);
    Tensor angle_PR = at::zeros({num_positions, dim / 2}, floats);
    if (is_rotated)
      angle_PR = at::outer(at::arange(num_positions, floats),
                           at::pow(10000, at::arange(dim / 2, floats) * (-2.0 / dim)));
    const Tensor cosine = angle_PR.cos(), sine = angle_PR.sin();
    Tensor q_norm, k_norm;
    if (is_normed) {
      const auto of_norm = has_float_norms ? at::kFloat : type;
      q_norm = (at::rand({dim}, floats) + 0.5).to(of_norm);
      k_norm = (at::rand({dim}, floats) + 0.5).to(of_norm);
      q_norm_D = q_norm.to(at::kCUDA);
      k_norm_D = k_norm.to(at::kCUDA);
    }
    cos_PR = cosine.to(at::kCUDA);
    sin_PR = sine.to(at::kCUDA);
    std::vector<int64_t> positions;
    for (const PagedSpan& span : spans)
      for (int64_t i = 0; i < span.num_rows; ++i)
        positions.push_back(span.num_keys - span.num_rows + i);
    positions.resize(qkv.size(0), 0);
    return twin()
        .norm_rotate(wide(qkv), at::tensor(positions), wide(q_norm), wide(k_norm), wide(cosine),
                     wide(sine), heads)
        .to(at::kFloat);
  }

  /// `x` as it comes back from the cache.
  Tensor cached(const Tensor& x) const {
    return is_fp8 ? x.clamp(-448, 448).to(at::kFloat8_e4m3fn).to(type) : x.to(type);
  }

  void plan(const PagedTables& tables) {
    const auto add_tiles = [&](const UnitPlan& plan) {
      if (plan.num_units == 0) return;
      batch.tiles.push_back(to_launch(plan, qkv_TE.size(0) - padding, at::kCUDA));
    };
    const int64_t group = heads.num_heads / heads.num_kv_heads;
    std::vector<PagedSpan> planned = spans;
    std::vector<int64_t> new_keys(spans.size(), 1);
    if (verifies_drafts) {
      planned.clear();
      new_keys.clear();
      for (const PagedSpan& span : spans) {
        for (int64_t j = 1; j <= span.num_rows; ++j) {
          planned.push_back({1, span.num_keys - span.num_rows + j});
          new_keys.push_back(j);
        }
      }
      batch.sees_new_keys = true;
    }
    if (packs) {
      PackedPlan packed = plan_packed(planned);
      const std::vector<int32_t> earlier = tables.pages_of(packed.contexts);
      batch.packed = {std::move(packed.own), std::move(packed.earlier), to_gpu(earlier, at::kInt)};
    }
    const KeySplit split{heads.num_kv_heads, splits_keys ? open_gpu().num_processors() : 0,
                         most_tile_rows(heads.head_dim)};
    const UnitPlan prompts = plan_prompts(planned, group, split);
    if (!open_gpu().has_decode_attention(heads, type)) {
      const int64_t launched = padding > 0 ? qkv_TE.size(0) : 0;
      const bool is_taken = prompts.num_partials > 0;
      const UnitPlan single =
          plan_single_rows(planned, launched, group, is_taken ? KeySplit{} : split);
      for (const UnitPlan* plan : {is_taken ? &prompts : &single, is_taken ? &single : &prompts})
        add_tiles(*plan);
      return;
    }
    add_tiles(prompts);
    std::vector<DecodeSequence> sequences;
    int64_t row = 0;
    for (size_t s = 0; s < planned.size(); ++s) {
      const auto sequence = static_cast<int64_t>(s);
      if (planned[s].num_rows == 1)
        sequences.push_back({sequence, row, planned[s].num_keys, tables.pages_of(sequence),
                             tables.page_starts[s], new_keys[s]});
      row += planned[s].num_rows;
    }
    if (sequences.empty()) return;
    const DecodePlan plan =
        plan_decode(sequences, static_cast<int64_t>(tables.last.size()),
                    {group, heads.num_kv_heads,
                     open_gpu().num_processors() *
                         decode_blocks_per_processor(static_cast<int>(heads.head_dim),
                                                     static_cast<int>(keys.element_size()))});
    batch.decode = to_launch(plan, at::kCUDA);
    for (const DecodeSegment& segment : plan.segments)
      most_members = std::max<int64_t>(most_members, segment.num_members);
  }

  Tensor attend() const { return attend(batch); }
  Tensor attend(const PagedBatch& step) const {
    PagedCall call;
    call.batch = &step;
    call.qkv_TE = qkv_TE.clone();
    call.rotary_row_T = positions_T;
    call.q_norm_D = q_norm_D;
    call.k_norm_D = k_norm_D;
    call.cos_PR = cos_PR;
    call.sin_PR = sin_PR;
    call.sinks_N = sinks_N;
    call.heads = heads;
    call.attention = attention;
    call.keys = keys;
    call.values = values;
    return open_gpu().paged_attention(call);
  }

  double error() {
    build();
    return relative_error(attend().narrow(0, 0, expected_TC.size(0)), expected_TC);
  }
};

std::vector<PagedSpan> decode_spans() {
  return {{1, 1}, {1, 15}, {1, 16}, {1, 17}, {1, 127}, {1, 128}, {1, 129}, {1, 1500}};
}
std::vector<PagedSpan> mixed_spans() {
  return {{1, 40}, {5, 5}, {127, 127}, {129, 300}, {1, 1}, {33, 600}};
}

/// Probabilities and the result are rounded once each.
double attention_tolerance(at::ScalarType type) {
  return type == at::kFloat ? 2e-6 : type == at::kBFloat16 ? 6e-3 : 1e-3;
}

TEST(GpuPagedAttention, EqualsTheTwinForEveryRatioOfHeads) {
  SLIME_NEEDS_GPU();
  for (const int64_t group : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
    for (const int64_t dim : {64, 128}) {
      for (const bool is_decode : {true, false}) {
        PagedCase one;
        one.heads = {2 * group, 2, dim, 0};
        one.attention = {1 / std::sqrt(static_cast<double>(dim)), 0};
        one.spans = is_decode ? decode_spans() : mixed_spans();
        EXPECT_LT(one.error(), attention_tolerance(one.type)) << group << " heads of " << dim;
      }
    }
  }
}

TEST(GpuPagedAttention, EqualsTheTwinWithWindowsInEveryPrecision) {
  SLIME_NEEDS_GPU();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t window : {0, 1, 16, 200}) {
      for (const int64_t dim : {24, 64, 128}) {
        for (const bool is_decode : {true, false}) {
          PagedCase one;
          one.type = type;
          one.heads = {4, 2, dim, 0};
          one.attention = {0.2, window};
          one.spans = is_decode ? decode_spans() : mixed_spans();
          EXPECT_LT(one.error(), attention_tolerance(type))
              << at::toString(type) << ", window " << window << ", heads of " << dim;
        }
      }
    }
  }
}

/// Caps about as large as the scores and well above them; by plain kernels, tiles and decode.
TEST(GpuPagedAttention, OfCappedScoresEqualsTheTwin) {
  SLIME_NEEDS_GPU();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const double cap : {1.0, 20.0}) {
      for (const int64_t window : {0, 20}) {
        for (const int64_t dim : {24, 64, 128, 256}) {
          for (const bool is_decode : {true, false}) {
            PagedCase one;
            one.type = type;
            one.heads = {8, 2, dim, 1e-6};
            one.attention = {0.1, window, cap};
            one.has_sinks = window > 0;
            one.is_normed = one.is_rotated = is_decode;
            one.spans = is_decode ? decode_spans() : mixed_spans();
            EXPECT_LT(one.error(), attention_tolerance(type))
                << at::toString(type) << ", cap " << cap << ", window " << window << ", heads of "
                << dim;
          }
        }
      }
    }
  }
}

/// Samples of a prompt whose pages are read once for all, keys that are split, and fp8.
TEST(GpuPagedAttention, OfCappedScoresSharesPagesAndSplitsKeys) {
  SLIME_NEEDS_GPU();
  for (const bool is_fp8 : {false, true}) {
    for (const int64_t dim : {64, 128}) {
      PagedCase one;
      one.heads = {8, 2, dim, 0};
      one.attention = {0.1, 0, 1};
      one.is_fp8 = is_fp8;
      one.spans.assign(8, {1, 21 * 16 + 40});
      one.samples = 8;
      one.shared_pages = 21;
      EXPECT_LT(one.error(), attention_tolerance(one.type)) << dim << (is_fp8 ? ", fp8" : "");
      EXPECT_GT(one.most_members, 1);
    }
  }
  PagedCase split;
  split.heads = {8, 2, 256, 0};
  split.attention = {0.06, 0, 0.8};
  split.splits_keys = true;
  split.spans = {{1, 6000}, {33, 70}};
  EXPECT_LT(split.error(), attention_tolerance(split.type));
  EXPECT_GT(split.batch.tiles.front().num_partials, 0);
}

/// Chains that begin a page, end one and go on in the next, with old pages that are worth sharing and without.
/// Before each step places of new keys hold others: a row that read them too early would be far off.
TEST(GpuPagedAttention, OfRowsThatVerifyDraftsEqualsTheTwin) {
  SLIME_NEEDS_GPU();
  for (const bool is_fp8 : {false, true}) {
    for (const int64_t group : {1, 4, 8}) {
      for (const int64_t window : {0, 40}) {
        for (const int64_t dim : {64, 128, 256}) {
          if (is_fp8 && dim == 256) continue;
          PagedCase one;
          one.heads = {2 * group, 2, dim, 1e-6};
          one.attention = {1 / std::sqrt(static_cast<double>(dim)), window};
          one.is_fp8 = is_fp8;
          one.is_normed = one.is_rotated = true;
          one.verifies_drafts = true;
          one.spans = {{4, 4},   {4, 30},   {8, 662}, {1, 300},  {2, 17},
                       {16, 40}, {5, 1616}, {8, 120}, {12, 124}, {8, 5000}};
          one.padding = 3;
          one.build();
          const Tensor keys = one.keys.clone(), values = one.values.clone();
          for (int round = 0; round < 10; ++round) {
            one.keys.copy_(keys);
            one.values.copy_(values);
            const Tensor out_TC = one.attend().narrow(0, 0, one.expected_TC.size(0));
            ASSERT_LT(relative_error(out_TC, one.expected_TC), attention_tolerance(one.type))
                << group << " heads of " << dim << ", window " << window << (is_fp8 ? ", fp8" : "")
                << ", round " << round;
          }
          if (window == 0 && dim < 256) {
            EXPECT_GT(one.most_members, 1);
          }
        }
      }
    }
  }
}

TEST(GpuPagedAttention, OfHeadsOf256EqualsTheTwin) {
  SLIME_NEEDS_GPU();
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t window : {0, 20}) {
      PagedCase one;
      one.type = type;
      one.heads = {8, 2, 256, 0};
      one.attention = {0.06, window};
      one.has_sinks = window > 0;
      one.spans = {{1, 17}, {1, 1}, {5, 5}, {33, 70}, {1, 130}};
      EXPECT_LT(one.error(), attention_tolerance(type))
          << at::toString(type) << ", window " << window;
    }
  }
}

/// One sequence, a few, with prompts beside them, and recorded steps with rows that belong to nobody.
TEST(GpuPagedAttention, OfHeadsOf256SplitsTheKeysOfDecode) {
  SLIME_NEEDS_GPU();
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t padding : {0, 3}) {
      for (const auto& spans : std::vector<std::vector<PagedSpan>>{
               {{1, 9000}}, {{1, 1}, {1, 5000}, {1, 511}, {1, 513}}, {{1, 6000}, {33, 70}}}) {
        if (padding > 0 && spans.back().num_rows > 1) continue;
        PagedCase one;
        one.type = type;
        one.heads = {8, 2, 256, 0};
        one.attention = {0.06, 0};
        one.splits_keys = true;
        one.padding = padding;
        one.spans = spans;
        EXPECT_LT(one.error(), attention_tolerance(type))
            << at::toString(type) << ", " << spans.size();
        EXPECT_GT(one.batch.tiles.front().num_partials, 0);
      }
    }
  }
}

/// A plan for layers without a window serves the others too: it only has chunks without keys.
TEST(GpuPagedAttention, TakesTheLaunchesThatAreForItsLayer) {
  SLIME_NEEDS_GPU();
  for (const int64_t window : {0, 40}) {
    PagedCase one;
    one.heads = {8, 2, 256, 0};
    one.attention = {0.06, window};
    one.spans = {{1, 3000}, {1, 17}};
    one.build();
    const PagedBatch whole = one.batch;
    PagedBatch either = whole;
    TileLaunch& mine = either.tiles.front();
    mine.layers = window > 0 ? TiledLayers::kWithWindow : TiledLayers::kWithoutWindow;
    TileLaunch nothing = mine;  // would leave rows of zeros
    nothing.layers = window > 0 ? TiledLayers::kWithoutWindow : TiledLayers::kWithWindow;
    nothing.num_partials = 1;
    nothing.merge_starts = at::zeros({3}, mine.num_rows.options());
    nothing.partial_starts = nothing.merge_starts;
    nothing.unit_is_on_U = at::zeros_like(mine.unit_is_on_U);
    either.tiles.push_back(nothing);
    EXPECT_TRUE(at::equal(bits_of(one.attend(either)), bits_of(one.attend(whole)))) << window;
  }
}

TEST(GpuPagedAttention, IgnoresThePaddingOfARecordedStep) {
  SLIME_NEEDS_GPU();
  for (const int64_t count : {3, 70}) {
    PagedCase one;
    one.heads = {32, 8, 128, 0};
    one.attention = {0.09, 0};
    for (int64_t i = 0; i < count; ++i) one.spans.push_back({1, 1 + i * 37 % 900});
    one.padding = 5;
    EXPECT_LT(one.error(), attention_tolerance(one.type)) << count << " sequences";
  }
}

/// Whole prompts, later parts of prompts, short ones and rows of decode in one step; then the same
/// prompts, cut otherwise, by the same plans.
TEST(GpuPagedAttention, EqualsTheTwinWhereLongPromptsArePacked) {
  SLIME_NEEDS_GPU();
  if (!open_gpu().has_packed_attention({8, 2, 128, 0}, at::kBFloat16))
    GTEST_SKIP() << "this GPU has tiles alone";
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const bool is_fp8 : {false, true}) {
      for (const int64_t dim : {64, 128}) {
        PagedCase one;
        one.type = type;
        one.is_fp8 = is_fp8;
        one.heads = {8, 2, dim, 0};
        one.attention = {0.1, 0};
        one.is_normed = one.is_rotated = dim == 128;
        one.packs = true;
        one.spans = {{1, 40}, {1500, 1500}, {1030, 2105}, {300, 900}, {1, 1}, {1024, 1025}};
        EXPECT_LT(one.error(), attention_tolerance(type)) << at::toString(type) << ", " << dim;
        EXPECT_EQ(one.batch.packed.own.pairs.size(), 3U);
        EXPECT_EQ(one.batch.packed.earlier.pairs.size(), 2U);
      }
    }
  }
}

TEST(GpuPagedAttention, EqualsTheTwinWhereFewRowsMeetManyKeys) {
  SLIME_NEEDS_GPU();
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t dim : {64, 128}) {
      PagedCase one;
      one.type = type;
      one.heads = {8, 2, dim, 0};
      one.attention = {0.1, 0};
      one.splits_keys = true;
      one.spans = {{1, 40}, {20, 6000}, {130, 3100}, {2, 2}, {1, 700}, {5, 515}};
      EXPECT_LT(one.error(), attention_tolerance(type)) << at::toString(type) << ", " << dim;
      EXPECT_GT(one.batch.tiles.front().num_partials, 0);
    }
  }
}

TEST(GpuPagedAttention, EqualsTheTwinWithSinks) {
  SLIME_NEEDS_GPU();
  for (const auto type : kGpuTypes) {
    for (const int64_t window : {0, 128}) {
      for (const bool is_decode : {true, false}) {
        PagedCase one;
        one.type = type;
        one.heads = {8, 2, 64, 0};
        one.attention = {0.2, window};
        one.has_sinks = true;
        one.splits_keys = one.packs = window == 0 && type != at::kFloat;
        one.spans = is_decode ? decode_spans() : mixed_spans();
        if (one.packs && !is_decode)
          one.spans.insert(one.spans.end(), {{1100, 1100}, {1100, 1300}});
        EXPECT_LT(one.error(), attention_tolerance(type))
            << at::toString(type) << ", window " << window << (is_decode ? ", decode" : "");
      }
    }
  }
}

/// Groups whose samples share all full pages of a prompt, at lengths around those of a page.
TEST(GpuPagedAttention, EqualsTheTwinWhereSequencesReadTheirPromptTogether) {
  SLIME_NEEDS_GPU();
  for (const int64_t group : {1, 2, 3, 4, 5, 7, 8, 16}) {
    for (const int64_t window : {0, 40, 300}) {
      PagedCase one;
      one.heads = {2 * group, 2, group % 2 == 0 ? 128 : 64, 0};
      one.attention = {0.1, window};
      one.samples = 8;
      one.shared_pages = 21;
      for (int64_t i = 0; i < 24; ++i) one.spans.push_back({1, 21 * 16 + 1 + 13 * i % 90});
      EXPECT_LT(one.error(), attention_tolerance(one.type)) << group << ", window " << window;
      // 32 heads share a segment; members of more than one are divided evenly.
      const int64_t most = std::min<int64_t>(8, 32 / group), segments = (8 + most - 1) / most;
      EXPECT_EQ(one.most_members, (8 + segments - 1) / segments);
    }
  }
}

/// The twin computes with what e4m3 can hold of the same keys and values: the rounding to it is not
/// part of the error.
TEST(GpuPagedAttention, EqualsTheTwinOfAnFp8Cache) {
  SLIME_NEEDS_GPU();
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t group : {1, 3, 4, 7, 16, 40}) {
      for (const int64_t dim : {64, 128}) {
        for (const bool is_decode : {true, false}) {
          PagedCase one;
          one.type = type;
          one.is_fp8 = true;
          one.heads = {2 * group, 2, dim, 0};
          one.attention = {0.1, group == 3 ? 50 : 0};
          one.spans = is_decode ? decode_spans() : mixed_spans();
          EXPECT_LT(one.error(), attention_tolerance(type))
              << at::toString(type) << ", " << group << " heads of " << dim;
        }
      }
    }
  }
}

TEST(GpuPagedAttention, OfAnFp8CacheReadsSharedPromptsTogether) {
  SLIME_NEEDS_GPU();
  for (const int64_t group : {1, 2, 4, 8}) {
    PagedCase one;
    one.is_fp8 = true;
    one.heads = {8 * group, 8, group == 2 ? 64 : 128, 0};
    one.attention = {0.1, 0};
    one.samples = 4;
    one.shared_pages = 30;
    for (int64_t i = 0; i < 12; ++i) one.spans.push_back({1, 30 * 16 + 1 + 17 * i});
    EXPECT_LT(one.error(), attention_tolerance(one.type)) << group;
    EXPECT_EQ(one.most_members, 4);
  }
}

/// Values beyond the range of e4m3 are clamped, not turned into NaN.
TEST(GpuPagedAttention, CutsNumbersThatFp8CannotHold) {
  SLIME_NEEDS_GPU();
  PagedCase one;
  one.is_fp8 = true;
  one.heads = {4, 1, 64, 0};
  one.spans = {{1, 1}};
  one.build();
  one.qkv_TE.narrow(1, int64_t{5} * 64, 64).fill_(1000);
  one.qkv_TE.narrow(1, int64_t{5} * 64, 32).fill_(-1000);
  const Tensor out = one.attend().view({4, 64}).to(at::kFloat);
  EXPECT_TRUE((out.narrow(1, 0, 32) == -448).all().item<bool>());
  EXPECT_TRUE((out.narrow(1, 32, 32) == 448).all().item<bool>());
}

TEST(GpuPagedAttention, NormsAndRotatesAsTheTwin) {
  SLIME_NEEDS_GPU();
  for (const int64_t group : {1, 4, 5, 7, 16, 32}) {
    for (const int64_t dim : {64, 128}) {
      for (const bool is_fp8 : {false, true}) {
        for (const bool is_decode : {true, false}) {
          PagedCase one;
          one.type = group == 5 ? at::kHalf : at::kBFloat16;
          one.is_fp8 = is_fp8;
          one.heads = {2 * group, 2, dim, 1e-6};
          one.attention = {0.1, group == 7 ? 40 : 0};
          one.is_rotated = true;
          one.is_normed = group != 16;
          one.spans = is_decode ? decode_spans() : mixed_spans();
          EXPECT_LT(one.error(), attention_tolerance(one.type))
              << group << " heads of " << dim << (is_fp8 ? ", fp8" : "")
              << (is_decode ? ", decode" : ", mixed");
        }
      }
    }
  }
}

/// As Qwen3-Next and Gemma 3 have them: one plus a weight, and heads of 256.
TEST(GpuPagedAttention, NormsInFloatAsTheTwin) {
  SLIME_NEEDS_GPU();
  for (const auto type : kGpuTypes) {
    for (const int64_t dim : {24, 64, 128, 256}) {
      for (const bool is_decode : {true, false}) {
        PagedCase one;
        one.type = type;
        one.heads = {8, 2, dim, 1e-6};
        one.attention = {0.1, 0};
        one.is_rotated = one.is_normed = one.has_float_norms = true;
        one.packs = dim == 128 && type != at::kFloat && !is_decode;
        one.spans = {{1, 17}, {1, 1}, {1, 130}};
        if (!is_decode) one.spans.insert(one.spans.end(), {{5, 5}, {33, 70}});
        if (one.packs) one.spans.push_back({1100, 1100});
        EXPECT_LT(one.error(), attention_tolerance(type))
            << at::toString(type) << ", heads of " << dim << (is_decode ? ", decode" : ", mixed");
      }
    }
  }
}

/// A step of nothing but decode norms, rotates and writes its keys inside attention. With a tile
/// that does nothing the same step takes the kernel that all others take.
void expect_same_bits_with_a_tile(PagedCase one, const std::string& what) {
  one.is_rotated = true;
  one.has_twin = false;
  one.build();
  ASSERT_TRUE(one.batch.tiles.empty()) << what;
  ASSERT_GT(one.batch.decode.num_units, 0) << what;
  PagedBatch with_tile = one.batch;
  TileLaunch launch;
  launch.num_units = 1;
  launch.unit_sequence_U = to_gpu(std::vector<int32_t>{0}, at::kInt);
  launch.unit_tile_U = launch.unit_chunk_U = launch.unit_sequence_U;
  launch.unit_is_on_U = to_gpu(std::vector<uint8_t>{0}, at::kByte);
  launch.chunk_tokens = to_gpu(std::vector<int32_t>{1 << 30}, at::kInt);
  launch.num_rows = to_gpu(std::vector<int32_t>{static_cast<int32_t>(one.spans.size())}, at::kInt);
  with_tile.tiles.push_back(launch);

  const auto rows = static_cast<int64_t>(one.spans.size());
  const int64_t pages = one.keys.size(0) - 1;  // the last one is where padding writes
  const Tensor old_keys = one.keys.clone(), old_values = one.values.clone();
  const Tensor out = one.attend().narrow(0, 0, rows);
  const Tensor keys = one.keys, values = one.values;
  one.keys = old_keys.clone();
  one.values = old_values.clone();
  const Tensor expected = one.attend(with_tile).narrow(0, 0, rows);
  EXPECT_TRUE(at::equal(bits_of(out), bits_of(expected))) << what;
  const auto real = [&](const Tensor& cache) { return bits_of(cache.narrow(0, 0, pages)); };
  EXPECT_TRUE(at::equal(real(keys), real(one.keys))) << "keys of " << what;
  EXPECT_TRUE(at::equal(real(values), real(one.values))) << "values of " << what;
  EXPECT_FALSE(at::equal(real(keys), real(old_keys))) << what;
  EXPECT_FALSE(at::equal(real(values), real(old_values))) << what;
}

TEST(GpuPagedAttention, OfDecodeWritesAndReadsTheBitsOfOtherSteps) {
  SLIME_NEEDS_GPU();
  for (const int64_t group : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 32}) {
    for (const int64_t dim : {64, 128}) {
      for (const bool is_fp8 : {false, true}) {
        PagedCase one;
        one.type = group % 2 == 0 ? at::kBFloat16 : at::kHalf;
        one.is_fp8 = is_fp8;
        one.heads = {2 * group, 2, dim, 1e-6};
        one.is_normed = group != 3;
        const std::string what = fmt::format("{} heads of {}{}", group, dim, is_fp8 ? ", fp8" : "");
        one.attention = {0.1, 0};
        one.spans = decode_spans();
        one.padding = 3;
        expect_same_bits_with_a_tile(one, what + ", many lengths");
        // Split into many segments, of which the last is fresh.
        for (const int64_t length : {1, 2, 16, 17, 1024, 1025, 5000}) {
          one.spans = {{1, length}};
          expect_same_bits_with_a_tile(one, fmt::format("{}, alone, {} keys", what, length));
        }
        one.padding = 0;
        one.samples = 8;
        one.shared_pages = 21;
        one.spans.clear();
        for (int64_t i = 0; i < 24; ++i) one.spans.push_back({1, 21 * 16 + 1 + 13 * i % 90});
        for (const int64_t window : {0, 1, 16, 300}) {
          one.attention.window = window;
          expect_same_bits_with_a_tile(one, fmt::format("{}, shared, window {}", what, window));
        }
      }
    }
  }
}

/// So many that each block has several segments.
TEST(GpuPagedAttention, OfAFullStepOfDecodeWritesAndReadsTheBitsOfOtherSteps) {
  SLIME_NEEDS_GPU();
  for (const bool is_fp8 : {false, true}) {
    for (const int64_t window : {0, 100}) {
      PagedCase one;
      one.is_fp8 = is_fp8;
      one.heads = {32, 8, 128, 1e-6};
      one.attention = {0.09, window};
      one.is_normed = true;
      one.padding = 6;
      for (int64_t i = 0; i < 250; ++i) one.spans.push_back({1, 1 + i * 37 % 900});
      expect_same_bits_with_a_tile(one, fmt::format("fp8 {}, window {}", is_fp8, window));
    }
  }
}

TEST(GpuPagedAttention, OfAStepRepeatsBitForBit) {
  SLIME_NEEDS_GPU();
  PagedCase one;
  one.heads = {32, 8, 128, 0};
  one.attention = {0.09, 0};
  one.samples = 8;
  one.shared_pages = 16;
  for (int64_t i = 0; i < 64; ++i) one.spans.push_back({1, 257 + 29 * i % 700});
  one.build();
  const Tensor first = one.attend();
  for (int round = 0; round < 5; ++round) EXPECT_TRUE(at::equal(one.attend(), first));
}

}  // namespace
}  // namespace slime::kernels
