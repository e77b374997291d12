/// Attention in training arithmetic: a row has the same bits in any chunk, behind any cached prefix, among any others,
/// and in the trainer's packed segments. One file because its tests share the made-up sequences.

#include <ATen/ATen.h>

#include <cmath>
#include <numeric>
#include <random>

#include "core/divide_up.h"
#include "kernels/cuda/attention/paged_tables_for_tests.h"
#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/gpu/exact_units.h"
#include "kernels/gpu/paged_units.h"

namespace slime::kernels {
namespace {

/// A kind of attention and what turns its heads.
struct ExactHeads {
  RotaryShape heads;
  TreeAttentionShape attention;
  bool has_sinks = false;
  Tensor q_norm_D, k_norm_D, cos_PR, sin_PR, sinks_N;

  explicit ExactHeads(const RotaryShape& of, double cap = 0, bool with_sinks = false)
      : heads(of),
        attention{1 / std::sqrt(static_cast<double>(of.head_dim)), 0, cap, true},
        has_sinks(with_sinks) {
    const auto floats = at::TensorOptions(at::kFloat).device(at::kCUDA);
    q_norm_D = at::randn({of.head_dim}, floats).to(at::kBFloat16);
    k_norm_D = at::randn({of.head_dim}, floats).to(at::kBFloat16);
    const Tensor angle = at::rand({5000, of.head_dim / 2}, floats) * 6;
    cos_PR = angle.cos();
    sin_PR = angle.sin();
    if (has_sinks) sinks_N = (2 * at::randn({of.num_heads}, floats)).to(at::kBFloat16);
  }

  int64_t width() const { return (heads.num_heads + 2 * heads.num_kv_heads) * heads.head_dim; }
  Tensor qkv(int64_t rows) const {
    return at::randn({rows, width()}, at::TensorOptions(at::kFloat).device(at::kCUDA))
        .to(at::kBFloat16);
  }
};

std::vector<int64_t> counted(int64_t begin, int64_t end) {
  std::vector<int64_t> numbers(static_cast<std::size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

/// Heads of packed rows, normed and rotated, each at its position.
Tensor rotated_heads(const ExactHeads& of, const Tensor& qkv_TE,
                     const std::vector<Segment>& segments) {
  std::vector<int64_t> positions, ends;
  for (const Segment& segment : segments) {
    const int64_t before = segment.parent < 0 ? 0 : ends[static_cast<std::size_t>(segment.parent)];
    for (int64_t i = 0; i < segment.end - segment.begin; ++i) positions.push_back(before + i);
    ends.push_back(before + segment.end - segment.begin);
  }
  return open_gpu().device().norm_rotate(qkv_TE, to_gpu(positions, at::kLong), of.q_norm_D,
                                         of.k_norm_D, of.cos_PR, of.sin_PR, of.heads);
}

/// The trainer's attention over segments of packed rows.
Tensor trained_attention(const ExactHeads& of, const Tensor& qkv_TE,
                         const std::vector<Segment>& segments) {
  Tensor statistics;
  return open_gpu().device().tree_attention_in_pages(rotated_heads(of, qkv_TE, segments), segments,
                                                     of.heads, of.attention, of.sinks_N,
                                                     statistics);
}

/// The engine's pages of some sequences, and steps over them.
class ExactPages {
 public:
  ExactPages(const ExactHeads& of, std::vector<Tensor> qkv_of_sequences)
      : of_(of), qkv_(std::move(qkv_of_sequences)), done_(qkv_.size(), 0) {
    std::vector<int64_t> all;
    for (const Tensor& qkv : qkv_) {
      ids_.push_back(counted(num_pages_, num_pages_ + divide_up(qkv.size(0), kPageTokens)));
      num_pages_ += static_cast<int64_t>(ids_.back().size());
    }
    std::vector<int64_t> order = counted(0, num_pages_);
    std::shuffle(order.begin(), order.end(), std::mt19937(3));
    for (auto& ids : ids_)
      for (int64_t& id : ids) id = order[static_cast<std::size_t>(id)];
    const auto options = at::TensorOptions(at::kBFloat16).device(at::kCUDA);
    keys_ =
        at::zeros({num_pages_ + 1, of.heads.num_kv_heads, kPageTokens, of.heads.head_dim}, options);
    values_ = at::zeros_like(keys_);
    for (const Tensor& qkv : qkv_)
      y_.push_back(at::zeros({qkv.size(0), of.heads.num_heads * of.heads.head_dim}, options));
  }

  int64_t num_missing(std::size_t sequence) const {
    return qkv_[sequence].size(0) - done_[sequence];
  }
  const Tensor& y_of(std::size_t sequence) const { return y_[sequence]; }

  /// The next `rows` of each named sequence, in this order.
  void step(const std::vector<std::pair<std::size_t, int64_t>>& chunks) {
    PagedTables tables;
    std::vector<ExactSequence> sequences;
    std::vector<Tensor> parts;
    int64_t row = 0, page = 0;
    for (const auto& [sequence, rows] : chunks) {
      const int64_t keys = done_[sequence] + rows;
      const int64_t pages = divide_up(keys, kPageTokens);
      tables.add({rows, keys}, std::span(ids_[sequence]).first(static_cast<std::size_t>(pages)));
      sequences.push_back({row, rows, keys, page});
      parts.push_back(qkv_[sequence].narrow(0, done_[sequence], rows));
      row += rows;
      page += pages;
    }
    PagedBatch batch;
    tables.copy_to(batch);
    batch.index_T = to_gpu(tables.positions, at::kLong);
    const int64_t group = of_.heads.num_heads / of_.heads.num_kv_heads;
    batch.exact = exact_launch(
        plan_exact(sequences, page, group, exact_tile(most_tile_rows(of_.heads.head_dim), group)),
        [](const std::vector<int32_t>& list) { return to_gpu(list, at::kInt); });
    PagedCall call;
    call.batch = &batch;
    call.qkv_TE = at::cat(parts).clone();
    call.rotary_row_T = batch.index_T;
    call.q_norm_D = of_.q_norm_D;
    call.k_norm_D = of_.k_norm_D;
    call.cos_PR = of_.cos_PR;
    call.sin_PR = of_.sin_PR;
    call.sinks_N = of_.sinks_N;
    call.heads = of_.heads;
    call.attention = {of_.attention.scale, 0, of_.attention.cap};
    call.keys = keys_;
    call.values = values_;
    const Tensor y = open_gpu().paged_attention(call);
    row = 0;
    for (const auto& [sequence, rows] : chunks) {
      y_[sequence].narrow(0, done_[sequence], rows).copy_(y.narrow(0, row, rows));
      done_[sequence] += rows;
      row += rows;
    }
  }

 private:
  const ExactHeads& of_;
  std::vector<Tensor> qkv_, y_;
  std::vector<int64_t> done_;
  std::vector<std::vector<int64_t>> ids_;
  int64_t num_pages_ = 0;
  Tensor keys_, values_;
};

struct ExactCase {
  const char* name;
  RotaryShape heads;
  double cap = 0;
  bool has_sinks = false;
};

const ExactCase kExactCases[] = {
    {"qwen3_4b", {32, 8, 128, 1e-6}},     {"qwen3_06b", {16, 8, 128, 1e-6}},
    {"one_head_each", {4, 4, 128, 1e-6}}, {"narrow", {8, 2, 64, 1e-6}},
    {"narrow_alone", {3, 3, 64, 1e-6}},   {"seven", {28, 4, 128, 1e-6}},
    {"wide", {8, 4, 256, 1e-6}},          {"one_for_all", {16, 1, 128, 1e-6}},
    {"capped", {8, 2, 128, 1e-6}, 30.0},  {"sinks", {8, 2, 64, 1e-6}, 0, true},
};

class GpuExactAttention : public testing::TestWithParam<ExactCase> {
 protected:
  static ExactHeads heads() {
    return ExactHeads(GetParam().heads, GetParam().cap, GetParam().has_sinks);
  }
};

TEST_P(GpuExactAttention, GivesTheTrainersBitsInChunksOfAnySize) {
  SLIME_NEEDS_GPU();
  const ExactHeads of = heads();
  for (const int64_t length : {1, 63, 64, 65, 300, 2100}) {
    const Tensor qkv = of.qkv(length);
    const Tensor expected = trained_attention(of, qkv, {{0, length, -1}});
    ASSERT_TRUE(at::isfinite(expected).all().item<bool>());
    for (const int64_t size : {int64_t{1}, int64_t{7}, int64_t{64}, int64_t{1000}, length}) {
      if (size == 1 && length > 300) continue;
      ExactPages pages(of, {qkv});
      while (pages.num_missing(0) > 0) pages.step({{0, std::min(size, pages.num_missing(0))}});
      EXPECT_TRUE(pages.y_of(0).equal(expected)) << length << " tokens in chunks of " << size;
    }
  }
}

TEST_P(GpuExactAttention, GivesTheSameBitsInRandomStepsOfSeveralSequences) {
  SLIME_NEEDS_GPU();
  const ExactHeads of = heads();
  std::mt19937 random(11);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 8; ++round) {
    std::vector<Tensor> sequences;
    for (int64_t s = 0; s < 1 + below(6); ++s) sequences.push_back(of.qkv(1 + below(700)));
    std::vector<Tensor> expected;
    for (const Tensor& qkv : sequences)
      expected.push_back(trained_attention(of, qkv, {{0, qkv.size(0), -1}}));
    // Two ways through the same sequences.
    for (int way = 0; way < 2; ++way) {
      ExactPages pages(of, sequences);
      for (;;) {
        std::vector<std::pair<std::size_t, int64_t>> chunks;
        for (std::size_t s = 0; s < sequences.size(); ++s) {
          const int64_t missing = pages.num_missing(s);
          if (missing > 0 && below(3) > 0)
            chunks.emplace_back(s, std::min(missing, 1 + below(below(2) == 0 ? 20 : 400)));
        }
        std::shuffle(chunks.begin(), chunks.end(), random);
        if (!chunks.empty()) pages.step(chunks);
        bool is_done = true;
        for (std::size_t s = 0; s < sequences.size(); ++s) is_done &= pages.num_missing(s) == 0;
        if (is_done) break;
      }
      for (std::size_t s = 0; s < sequences.size(); ++s)
        EXPECT_TRUE(pages.y_of(s).equal(expected[s])) << "round " << round << ", sequence " << s;
    }
  }
}

TEST_P(GpuExactAttention, GivesASharedPromptsResponsesTheBitsOfWholeSequences) {
  SLIME_NEEDS_GPU();
  const ExactHeads of = heads();
  // A prompt, two responses, what goes on behind the first, and a sequence of its own.
  const std::vector<Segment> tree{
      {0, 333, -1}, {333, 470, 0}, {470, 481, 1}, {481, 900, 0}, {900, 1000, -1}};
  const Tensor qkv = of.qkv(1000);
  const Tensor y = trained_attention(of, qkv, tree);
  for (std::size_t i = 0; i < tree.size(); ++i) {
    std::vector<Tensor> chain;
    for (auto at = static_cast<int32_t>(i); at >= 0; at = tree[static_cast<std::size_t>(at)].parent)
      chain.insert(chain.begin(), qkv.slice(0, tree[static_cast<std::size_t>(at)].begin,
                                            tree[static_cast<std::size_t>(at)].end));
    const Tensor sequence = at::cat(chain);
    const int64_t own = tree[i].end - tree[i].begin, length = sequence.size(0);
    const Tensor alone = trained_attention(of, sequence, {{0, length, -1}});
    EXPECT_TRUE(y.slice(0, tree[i].begin, tree[i].end).equal(alone.narrow(0, length - own, own)))
        << "segment " << i;
  }
}

/// Values and gradients of other kernels, up to rounding, and a logsumexp to the base of e.
TEST_P(GpuExactAttention, IsTheTrainersUsualAttentionUpToRounding) {
  SLIME_NEEDS_GPU();
  const ExactHeads of = heads();
  if (of.has_sinks || of.attention.cap > 0) GTEST_SKIP() << "the usual kernels have them elsewhere";
  const Device& gpu = open_gpu().device();
  const std::vector<Segment> tree{{0, 200, -1}, {200, 420, 0}, {420, 500, 0}};
  const Tensor rows = rotated_heads(of, of.qkv(500), tree);
  const TreeAttentionShape plain{of.attention.scale, 0};
  Tensor exact_statistics, statistics;
  const Tensor exact = gpu.tree_attention_in_pages(rows, tree, of.heads, of.attention, {},
                                                   exact_statistics),
               usual = gpu.tree_attention(rows, tree, of.heads, plain, statistics);
  EXPECT_LT(relative_error(exact, usual.to(at::kFloat)), 6e-3);
  EXPECT_LT((exact_statistics - statistics).abs().max().item<float>(), 2e-3);
  const Tensor dy = at::randn_like(usual);
  const auto gradient = [&](const Tensor& y, const Tensor& of_statistics) {
    return gpu.tree_attention_backward(dy, y, rows, of_statistics, tree, of.heads, plain);
  };
  EXPECT_LT(
      relative_error(gradient(exact, exact_statistics), gradient(usual, statistics).to(at::kFloat)),
      2e-2);
}

INSTANTIATE_TEST_SUITE_P(All, GpuExactAttention, testing::ValuesIn(kExactCases),
                         [](const auto& info) { return std::string(info.param.name); });

/// 200 pairs of batches that have one sequence in common.
TEST(GpuExact, AttentionOfASequenceIsTheSameInAnyTwoBatches) {
  SLIME_NEEDS_GPU();
  const ExactHeads of({8, 2, 128, 1e-6});
  std::mt19937 random(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int pair = 0; pair < 200; ++pair) {
    const Tensor common = of.qkv(1 + below(500));
    const int64_t cached = below(common.size(0));
    Tensor seen;
    for (int batch = 0; batch < 2; ++batch) {
      std::vector<Tensor> sequences{common};
      for (int64_t s = 0; s < below(5); ++s) sequences.push_back(of.qkv(1 + below(300)));
      ExactPages pages(of, sequences);
      if (cached > 0) pages.step({{0, cached}});
      std::vector<std::pair<std::size_t, int64_t>> chunks;
      for (std::size_t s = 0; s < sequences.size(); ++s)
        chunks.emplace_back(s, pages.num_missing(s));
      std::shuffle(chunks.begin(), chunks.end(), random);
      pages.step(chunks);
      if (batch == 0) {
        seen = pages.y_of(0);
      } else {
        EXPECT_TRUE(pages.y_of(0).equal(seen)) << "pair " << pair;
      }
    }
  }
}

}  // namespace
}  // namespace slime::kernels
