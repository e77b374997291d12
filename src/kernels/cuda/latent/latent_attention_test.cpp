/// Latent attention on the GPU, in the absorbed form, against the expanded one in float64. One file
/// because its tests share the made-up step and its twin.

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention/paged_tables_for_tests.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/gpu/decode_launch.h"
#include "kernels/gpu/latent_prompts.h"
#include "kernels/gpu/paged_units.h"
#include "kernels/page.h"

namespace slime::kernels {
namespace {

constexpr LatentShape kMoonlight{16, 512, 64, 128, 128};
constexpr LatentShape kGlmFlash{20, 512, 64, 192, 256};

/// Freed memory that later results take holds no numbers.
void poison_free_memory() {
  std::vector<Tensor> poison;
  const auto add = [&](int64_t bytes, int count) {
    for (int i = 0; i < count; ++i)
      poison.push_back(at::full({bytes / 4}, NAN, at::TensorOptions(at::kFloat).device(at::kCUDA)));
  };
  add(64 << 20, 4);
  add(8 << 20, 8);
  add(512 << 10, 32);
  add(16 << 10, 64);
}

/// Sequences whose earlier tokens are in scattered pages and whose new rows are still to come. Slots
/// that nobody has written hold no numbers.
struct LatentCase {
  LatentShape shape = kMoonlight;
  at::ScalarType type = at::kBFloat16;
  bool rotates_pairs = true;
  std::vector<PagedSpan> spans;
  int64_t padding = 0;           // rows of a recorded step that belong to nobody
  bool has_plan = true;          // otherwise all rows are attended by themselves
  bool verifies_drafts = false;  // each row is a sequence: those of a span see each other's keys
  int64_t num_expanded = 0;      // prompts
  int64_t num_chosen = 0;        // of the tokens that a row of decode sees, at most; 0: all
  int64_t pair_rank = 0;         // of an adapter beside the expanding product; 0: there is none

  LatentCall call;
  PagedBatch batch;
  Tensor expected_TC, expected_rows;  // float64: what attention returns, and new rows of the cache
  Tensor slot_T, old_rows;            // int64; the cache before, both on the CPU

  void build() {
    const int64_t heads = shape.num_heads, rank = shape.rank, rotary = shape.rotary_dim,
                  plain = shape.plain_dim, value = shape.value_dim, size = shape.row_size();
    int64_t rows = 0, num_pages = 0, longest = 1;
    for (const PagedSpan& span : spans) {
      rows += span.num_rows;
      num_pages += (span.num_keys + 15) / 16;
      longest = std::max(longest, span.num_keys);
    }
    // Queries, latent and rotating key are columns of one tensor.
    const int64_t query_size = heads * (plain + rotary);
    const Tensor projected = numbers({rows + padding, query_size + size}, type);
    const Tensor norm = (at::rand({rank}, at::TensorOptions(at::kFloat)) + 0.5).to(type);
    const Tensor expand =
        (numbers({heads * (plain + value), rank}, at::kFloat) / std::sqrt(double(rank))).to(type);
    Tensor exact_expand = wide(expand);
    if (pair_rank > 0) {
      const Tensor a_RL = numbers({pair_rank, rank}, at::kFloat) / std::sqrt(double(rank)),
                   b_ER = numbers({heads * (plain + value), pair_rank}, at::kFloat);
      const double addition = 0.5 / std::sqrt(double(pair_rank));  // half as large as the product
      exact_expand += addition * at::matmul(wide(b_ER), wide(a_RL));
      call.pairs = {{to_gpu(a_RL), to_gpu(b_ER).view({heads, plain + value, pair_rank}), addition}};
    }
    const at::TensorOptions floats(at::kFloat);
    const Tensor angle_PR = at::outer(
        at::arange(longest, floats),
        at::pow(10000, at::arange(rotary / 2, floats) * (-2.0 / static_cast<double>(rotary))));
    std::vector<int64_t> order(static_cast<std::size_t>(rotary));
    for (int64_t i = 0; i < rotary / 2; ++i) {
      order[i] = rotates_pairs ? 2 * i : i;
      order[i + rotary / 2] = rotates_pairs ? 2 * i + 1 : i + rotary / 2;
    }
    const Tensor order_R = at::tensor(order, at::kLong);
    const Tensor page_order = at::randperm(num_pages, at::TensorOptions(at::kLong));
    old_rows = at::full({num_pages + 1, 1, kPageTokens, size}, NAN, floats).to(type);
    Tensor flat_rows = old_rows.view({-1, size});

    PagedTables tables;
    std::vector<Tensor> expected, made;
    const int64_t most_chosen = std::min(num_chosen, longest);
    // What is behind the chosen tokens of a row is no place in the cache.
    Tensor chosen_TC =
        at::full({rows + padding, most_chosen}, -(1 << 30), at::TensorOptions(at::kInt));
    int64_t row = 0, first_page = 0;
    for (const PagedSpan& span : spans) {
      const int64_t earlier = span.num_keys - span.num_rows;
      std::vector<int64_t> places, ids;
      const int64_t count = (span.num_keys + 15) / 16;
      for (int64_t p = 0; p < count; ++p) ids.push_back(page_order[first_page + p].item<int64_t>());
      for (int64_t p = 0; p < span.num_keys; ++p) places.push_back(ids[p / 16] * 16 + p % 16);
      first_page += count;
      verifies_drafts ? tables.add_rows(span, ids) : tables.add(span, ids);
      const Tensor place_K = at::tensor(places, at::kLong);
      const Tensor old_KE = numbers({earlier, size}, type);
      flat_rows.index_copy_(0, place_K.narrow(0, 0, earlier), old_KE);

      const Tensor own = wide(projected.narrow(0, row, span.num_rows));
      row += span.num_rows;
      const Tensor angles = wide(angle_PR.narrow(0, earlier, span.num_rows));
      const auto rotated = [&](const Tensor& x) {  // [rows, ..., R]
        const Tensor y = x.index_select(-1, order_R);
        const Tensor a = y.narrow(-1, 0, rotary / 2), b = y.narrow(-1, rotary / 2, rotary / 2);
        const Tensor angle = x.dim() == 3 ? angles.unsqueeze(1) : angles;
        return at::cat({a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()}, -1);
      };
      const Tensor query_TND =
          own.narrow(1, 0, query_size).view({span.num_rows, heads, plain + rotary});
      const Tensor latent = own.narrow(1, query_size, rank);
      const Tensor normed = latent / (latent.square().mean(-1, true) + 1e-6).sqrt() * wide(norm);
      made.push_back(at::cat({rotated(own.narrow(1, query_size + rank, rotary)), normed}, 1));
      const Tensor all_KE = at::cat({wide(old_KE), made.back()});
      const Tensor expanded_KNE = at::matmul(all_KE.narrow(1, rotary, rank), exact_expand.t())
                                      .view({span.num_keys, heads, plain + value});
      const Tensor scores_NTK =
          at::matmul(query_TND.narrow(2, 0, plain).transpose(0, 1),
                     expanded_KNE.narrow(2, 0, plain).permute({1, 2, 0})) +
          at::matmul(rotated(query_TND.narrow(2, plain, rotary)).transpose(0, 1),
                     all_KE.narrow(1, 0, rotary).t());
      Tensor hidden = at::arange(span.num_keys) > at::arange(earlier, span.num_keys).unsqueeze(1);
      if (num_chosen > 0) {
        const Tensor choice = std::get<0>(at::randperm(span.num_keys, at::TensorOptions(at::kLong))
                                              .narrow(0, 0, std::min(most_chosen, span.num_keys))
                                              .sort());
        hidden = at::ones({1, span.num_keys}, at::TensorOptions(at::kBool));
        hidden.index_fill_(1, choice, at::Scalar(false));
        chosen_TC[row - 1].narrow(0, 0, choice.size(0)).copy_(place_K.index_select(0, choice));
      }
      const Tensor weights = (scores_NTK * call.scale).masked_fill(hidden, -INFINITY).softmax(-1);
      expected.push_back(at::matmul(weights, expanded_KNE.narrow(2, plain, value).transpose(0, 1))
                             .transpose(0, 1)
                             .reshape({span.num_rows, heads * value}));
    }
    expected_TC = at::cat(expected);
    expected_rows = at::cat(made);
    slot_T = at::tensor(tables.slots, at::kLong);
    tables.pad(padding, num_pages);
    const Tensor on_gpu = to_gpu(projected);
    call.batch = &batch;
    call.shape = shape;
    call.query_TE = on_gpu.narrow(1, 0, query_size);
    call.latent_TL = on_gpu.narrow(1, query_size, rank);
    call.rotary_key_TR = on_gpu.narrow(1, query_size + rank, rotary);
    call.rotary_row_T = batch.index_T = to_gpu(tables.positions, at::kLong);
    call.latent_norm_L = to_gpu(norm);
    call.norm_eps = 1e-6;
    call.expand = to_gpu(expand);
    call.cos_PR = to_gpu(angle_PR.cos());
    call.sin_PR = to_gpu(angle_PR.sin());
    if (rotates_pairs) call.rotary_order_R = to_gpu(order_R);
    call.rows = to_gpu(old_rows);
    tables.copy_to(batch);
    if (num_chosen > 0) {
      chosen_TC.narrow(0, rows, padding).select(1, 0).fill_(num_pages * kPageTokens);
      call.chosen_TC = to_gpu(chosen_TC);
      return;
    }
    if (!has_plan || !open_gpu().has_latent_units(size, type)) return;
    const bool is_decode = verifies_drafts || std::ranges::all_of(spans, [](const PagedSpan& span) {
                             return span.num_rows == 1;
                           });
    is_decode ? plan(tables) : plan_prompts(tables);
  }

  void plan_prompts(const PagedTables& tables) {
    std::vector<PagedSpan> planned = spans;
    PackedPlan packed = plan_expanded(planned);
    const std::vector<int32_t> gathered = tables.pages_of(packed.contexts);
    num_expanded = static_cast<int64_t>(packed.own.pairs.size());
    if (num_expanded > 0)
      batch.packed = {std::move(packed.own), std::move(packed.earlier), to_gpu(gathered, at::kInt)};
    const UnitPlan units = plan_absorbed(planned);
    if (units.num_units == 0) return;
    TileLaunch launch;
    launch.tile = units.tile;
    launch.num_units = units.num_units;
    launch.unit_sequence_U = to_gpu(units.sequence_U, at::kInt);
    launch.unit_tile_U = to_gpu(units.tile_U, at::kInt);
    batch.tiles.push_back(std::move(launch));
  }

  void plan(const PagedTables& tables) {
    std::vector<DecodeSequence> sequences;
    for (const PagedSpan& span : spans) {
      for (int64_t j = 1; j <= span.num_rows; ++j) {
        const auto sequence = std::ssize(sequences);
        sequences.push_back({sequence, sequence, span.num_keys - span.num_rows + j,
                             tables.pages_of(sequence),
                             tables.page_starts[static_cast<std::size_t>(sequence)], j});
      }
    }
    const DecodePlan plan =
        plan_decode(sequences, std::ssize(sequences) + padding,
                    latent_decode_options(shape.num_heads, open_gpu().num_processors()));
    batch.decode = to_launch(plan, at::kCUDA);
  }

  Tensor attend() const { return open_gpu().latent_attention(call); }
  double error(const Tensor& y_TC) const {
    return relative_error(y_TC.narrow(0, 0, expected_TC.size(0)), expected_TC);
  }
};

/// Of numbers that are rounded to `type` a few times on their way.
double latent_tolerance(at::ScalarType type) {
  return type == at::kFloat ? 5e-6 : type == at::kHalf ? 2e-3 : 1.2e-2;
}

void expect_exact(LatentCase& one) {
  one.call.scale = 1 / std::sqrt(static_cast<double>(one.shape.plain_dim + one.shape.rotary_dim));
  one.build();
  poison_free_memory();
  EXPECT_LT(one.error(one.attend()), latent_tolerance(one.type));
  const Tensor rows_ME = one.call.rows.cpu().view({-1, one.shape.row_size()});
  EXPECT_LT(relative_error(rows_ME.index_select(0, one.slot_T), one.expected_rows),
            latent_tolerance(one.type));
  // Nobody else's rows were touched, but for the last page, where padding writes.
  Tensor others = one.old_rows.view({-1, one.shape.row_size()}).clone();
  others.index_copy_(0, one.slot_T, rows_ME.index_select(0, one.slot_T));
  const int64_t count = others.size(0) - kPageTokens;
  EXPECT_TRUE(at::equal(others.narrow(0, 0, count).contiguous().view(at::kByte),
                        rows_ME.narrow(0, 0, count).contiguous().view(at::kByte)));
}

std::vector<PagedSpan> rows_of_one(const std::vector<int64_t>& lengths) {
  std::vector<PagedSpan> spans;
  for (const int64_t length : lengths) spans.push_back({1, length});
  return spans;
}

TEST(GpuLatentAttention, DecodesOneSequenceOfAnyLength) {
  SLIME_NEEDS_GPU();
  for (const int64_t length : {1, 2, 15, 16, 17, 31, 32, 33, 64, 65, 159, 160, 161, 1000, 5000}) {
    LatentCase one;
    one.spans = rows_of_one({length});
    SCOPED_TRACE(length);
    expect_exact(one);
  }
}

/// Places of new rows hold no numbers before.
TEST(GpuLatentAttention, DecodesRowsThatVerifyDrafts) {
  SLIME_NEEDS_GPU();
  for (int round = 0; round < 5; ++round) {
    LatentCase one;
    one.spans = {{4, 4}, {4, 30}, {8, 662}, {1, 300}, {2, 17}, {16, 40}, {5, 65}, {8, 5000}};
    one.verifies_drafts = true;
    one.padding = 3;
    SCOPED_TRACE(round);
    expect_exact(one);
  }
}

TEST(GpuLatentAttention, DecodesBatchesOfRaggedSequences) {
  SLIME_NEEDS_GPU();
  for (const int64_t count : {2, 8, 9, 16, 17, 65, 140}) {
    LatentCase one;
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < count; ++i)
      lengths.push_back(1 + 37 * i % 161 + (i % 29 == 3 ? 900 : 0));
    one.spans = rows_of_one(lengths);
    one.padding = count % 3;
    SCOPED_TRACE(count);
    expect_exact(one);
  }
}

TEST(GpuLatentAttention, HasOtherNumbersOfHeadsAndSizes) {
  SLIME_NEEDS_GPU();
  const LatentShape many{64, 512, 64, 128, 128}, few{4, 512, 64, 32, 48};
  for (const LatentShape& shape : {kGlmFlash, many, few}) {
    for (const bool rotates_pairs : {false, true}) {
      LatentCase one;
      one.shape = shape;
      one.rotates_pairs = rotates_pairs;
      one.spans = rows_of_one({1, 40, 333});
      SCOPED_TRACE(shape.num_heads);
      expect_exact(one);
    }
  }
}

TEST(GpuLatentAttention, TakesPromptsAndRowsOfDecodeTogether) {
  SLIME_NEEDS_GPU();
  for (const bool is_long : {false, true}) {
    LatentCase one;
    one.spans = {{1, 40}, {5, 5}, {33, 90}, {1, 1}, {17, 17}};
    if (is_long) one.spans = {{700, 700}, {130, 1200}, {1, 300}};
    one.has_plan = false;
    SCOPED_TRACE(is_long);
    expect_exact(one);
  }
}

TEST(GpuLatentAttention, ExpandsLongPromptsAndAbsorbsOtherRows) {
  SLIME_NEEDS_GPU();
  using Spans = std::vector<PagedSpan>;
  for (const LatentShape& shape : {kMoonlight, kGlmFlash}) {
    for (const Spans& spans : {Spans{{300, 300}}, Spans{{256, 1000}},
                               Spans{{5, 5}, {257, 257}, {1, 40}, {512, 1203}, {2, 2}},
                               Spans{{1, 40}, {5, 5}, {33, 90}}}) {
      LatentCase one;
      one.shape = shape;
      one.spans = spans;
      SCOPED_TRACE(spans.front().num_keys);
      expect_exact(one);
      EXPECT_EQ(one.num_expanded, std::ranges::count_if(spans, [](const PagedSpan& span) {
                  return span.num_rows >= kLeastExpandedRows;
                }));
    }
  }
}

TEST(GpuLatentAttention, HasEveryPrecisionAndSizeByPlainOperations) {
  SLIME_NEEDS_GPU();
  for (const auto type : kGpuTypes) {
    for (const LatentShape& shape : {LatentShape{4, 32, 16, 16, 24}, LatentShape{4, 16, 4, 12, 16},
                                     LatentShape{3, 512, 64, 128, 128}}) {
      for (const bool rotates_pairs : {false, true}) {
        LatentCase one;
        one.type = type;
        one.shape = shape;
        one.rotates_pairs = rotates_pairs;
        one.spans = {{1, 40}, {5, 5}, {33, 90}, {1, 1}};
        SCOPED_TRACE(at::toString(type));
        expect_exact(one);
      }
    }
  }
}

/// Rows that see fewer tokens than are chosen, a whole stage of the pipeline of them, some units and many;
/// rows that are split and are not.
TEST(GpuLatentAttention, LooksAtChosenTokens) {
  SLIME_NEEDS_GPU();
  for (const int64_t chosen : {1, 31, 32, 33, 100, 2048}) {
    for (const int64_t count : {1, 2, 3, 17, 64, 140}) {
      LatentCase one;
      one.num_chosen = chosen;
      std::vector<int64_t> lengths;
      for (int64_t i = 0; i < count; ++i)
        lengths.push_back(1 + 37 * i % 161 + (i % 29 == 0 ? 2900 : 0));
      one.spans = rows_of_one(lengths);
      one.padding = count % 3;
      SCOPED_TRACE(fmt::format("{} of {} rows", chosen, count));
      expect_exact(one);
    }
  }
}

TEST(GpuLatentAttention, LooksAtChosenTokensWithOtherNumbersOfHeads) {
  SLIME_NEEDS_GPU();
  const LatentShape many{128, 512, 64, 128, 128}, few{4, 512, 64, 32, 48};
  for (const LatentShape& shape : {kGlmFlash, many, few}) {
    LatentCase one;
    one.shape = shape;
    one.num_chosen = 150;
    one.spans = rows_of_one({1, 40, 333, 150, 151});
    SCOPED_TRACE(shape.num_heads);
    expect_exact(one);
  }
}

TEST(GpuLatentAttention, AddsWhatAnAdapterOfTheExpandingProductDoes) {
  SLIME_NEEDS_GPU();
  for (const int64_t rank : {1, 8, 40}) {
    SCOPED_TRACE(rank);
    LatentCase decode;
    decode.spans = rows_of_one({1, 40, 1000, 17, 5000});
    decode.padding = 3;
    LatentCase many;  // whose records are merged anyway
    many.spans = rows_of_one(std::vector<int64_t>(140, 333));
    LatentCase prompts;
    prompts.spans = {{5, 5}, {257, 257}, {1, 40}, {512, 1203}, {2, 2}};
    LatentCase mixed;
    mixed.spans = {{1, 40}, {5, 5}, {33, 90}};
    mixed.has_plan = false;
    LatentCase chosen;
    chosen.num_chosen = 100;
    chosen.spans = rows_of_one({1, 40, 3000, 333});
    LatentCase plain;
    plain.type = at::kFloat;
    plain.shape = {4, 32, 16, 16, 24};
    plain.spans = {{1, 40}, {5, 5}, {33, 90}};
    for (LatentCase* one : {&decode, &many, &prompts, &mixed, &chosen, &plain}) {
      one->pair_rank = rank;
      expect_exact(*one);
    }
  }
}

TEST(GpuLatentAttention, IsRecordedAndReplayedWithOtherNumbers) {
  SLIME_NEEDS_GPU();
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  const c10::StreamGuard guard(device.getStreamFromGlobalPool(at::Device(at::kCUDA, 0)));
  for (const int64_t count : {1, 12}) {
    LatentCase one;
    one.spans = rows_of_one(std::vector<int64_t>(static_cast<std::size_t>(count), 200));
    one.call.scale = 0.07;
    one.build();
    const Tensor eager = one.attend();
    Tensor recorded;
    const auto graph =
        open_gpu().record([&] { recorded = one.attend(); }, nullptr, GraphLaunch::kWhole);
    graph->replay();
    EXPECT_TRUE(at::equal(recorded, eager));
    one.call.query_TE.mul_(-0.5);
    graph->replay();
    const Tensor other = one.attend();
    EXPECT_TRUE(at::equal(recorded, other));
    EXPECT_FALSE(at::equal(other, eager));
  }
}

}  // namespace
}  // namespace slime::kernels
