#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "bench/gpu_kernels.h"
#include "bench/harness.h"
#include "kernels/gpu/gpu.h"

namespace slime::bench {
namespace {

// DeepSeek-V3.2's, of a GPU that has all heads.
constexpr kernels::LatentShape kShape{128, 512, 64, 128, 128};
constexpr int64_t kIndexHeads = 64, kIndexSize = 128, kChosen = 2048;
constexpr int64_t kRowBytes = (512 + 64) * 2, kIndexKeyBytes = kIndexSize * 4;
constexpr int64_t kPageTokens = kernels::kPageTokens;

/// Sequences of `keys` tokens in decode, whose pages lie as they came; several caches, so that none is in the
/// second level cache when its turn comes.
struct SparseDecode {
  int64_t rows = 0, keys = 0;

  const kernels::Gpu& gpu = kernels::opened_gpu();
  kernels::PagedBatch batch;
  at::TensorOptions there = at::TensorOptions(at::kCUDA), floats = there.dtype(at::kFloat),
                    halves = there.dtype(at::kBFloat16);

  void build() {
    const int64_t pages = keys / kPageTokens;
    const auto integers = there.dtype(at::kInt);
    batch.page_starts = at::arange(rows + 1, integers) * pages;
    batch.query_starts = at::arange(rows + 1, integers);
    batch.row_sequence_T = at::arange(rows, integers);
    batch.pages = at::randperm(rows * pages, there.dtype(at::kLong)).to(at::kInt);
    batch.slot_T =
        batch.pages.slice(0, pages - 1, rows * pages, pages) * kPageTokens + (kPageTokens - 1);
    batch.index_T = at::full({rows}, keys - 1, there.dtype(at::kLong));
  }

  double seconds_of_choice() const {
    std::vector<kernels::IndexCall> calls;
    for (int i = 0; i < num_cold_copies(rows * keys * kIndexKeyBytes); ++i) {
      calls.push_back({.batch = &batch,
                       .query_TJD = at::randn({rows, kIndexHeads, kIndexSize}, floats),
                       .key_TD = at::randn({rows, kIndexSize}, floats),
                       .weight_TJ = at::randn({rows, kIndexHeads}, floats),
                       .keys = at::randn({batch.pages.size(0), kPageTokens, kIndexSize}, floats),
                       .count = kChosen,
                       .most_keys = keys});
    }
    return recorded_seconds(static_cast<int>(calls.size()),
                            [&](int i) { gpu.choose_tokens(calls[static_cast<std::size_t>(i)]); });
  }

  double seconds_of_attention() const {
    const Tensor projected =
        at::randn({rows, kShape.num_heads * (kShape.plain_dim + kShape.rotary_dim)}, halves);
    const Tensor angle_PR = at::rand({keys, kShape.rotary_dim / 2}, floats);
    kernels::LatentCall call;
    call.batch = &batch;
    call.shape = kShape;
    call.scale = 0.07;
    call.query_TE = projected;
    call.latent_TL = at::randn({rows, kShape.rank}, halves);
    call.rotary_key_TR = at::randn({rows, kShape.rotary_dim}, halves);
    call.rotary_row_T = batch.index_T;
    call.latent_norm_L = at::ones({kShape.rank}, halves);
    call.norm_eps = 1e-6;
    call.cos_PR = angle_PR.cos();
    call.sin_PR = angle_PR.sin();
    // Scattered, as an indexer chooses, in the order of the tokens.
    const int64_t chosen = std::min(kChosen, keys), every = keys / chosen;
    const Tensor position_C = at::arange(chosen, there.dtype(at::kLong)) * every;
    const Tensor page_SC =
        batch.pages.view({rows, -1}).index_select(1, position_C.div(kPageTokens, "floor"));
    call.chosen_TC = (page_SC * kPageTokens + position_C.remainder(kPageTokens)).to(at::kInt);
    std::vector<kernels::LatentCall> calls;
    for (int i = 0; i < num_cold_copies(rows * chosen * kRowBytes + expand_bytes()); ++i) {
      calls.push_back(call);
      calls.back().rows =
          at::randn({batch.pages.size(0), 1, kPageTokens, kShape.row_size()}, halves);
      calls.back().expand =
          at::randn({kShape.num_heads * (kShape.plain_dim + kShape.value_dim), kShape.rank},
                    halves) *
          0.04;
    }
    return recorded_seconds(static_cast<int>(calls.size()), [&](int i) {
      gpu.latent_attention(calls[static_cast<std::size_t>(i)]);
    });
  }

  static int64_t expand_bytes() {
    return kShape.num_heads * (kShape.plain_dim + kShape.value_dim) * kShape.rank * 2;
  }
};

}  // namespace

void measure_sparse_kernels(const KernelLines& lines) {
  const at::NoGradGuard no_grad;
  if (!kernels::opened_gpu().has_sparse_decode(kShape, kIndexHeads, kIndexSize, at::kBFloat16))
    return;
  for (const auto& [rows, keys] : {std::pair<int64_t, int64_t>{1, 4096},
                                   {1, 32'768},
                                   {1, 131'072},
                                   {32, 4096},
                                   {32, 32'768},
                                   {128, 4096}}) {
    const auto name = [&, rows = rows, keys = keys](const char* what) {
      return fmt::format("sparse-{}-r{}-k{}", what, rows, keys);
    };
    const bool chooses = lines.wants(name("choice")), attends = lines.wants(name("attention"));
    if (!chooses && !attends) continue;
    SparseDecode decode{.rows = rows, .keys = keys};
    decode.build();
    // Index keys, read once, and what heads make of them.
    if (chooses) {
      const auto pairs = static_cast<double>(rows * keys);
      lines.write(name("choice"), {.bytes = pairs * kIndexKeyBytes}, decode.seconds_of_choice());
    }
    // Chosen rows, read once, and the matrix that would expand keys and values.
    if (attends) {
      const auto pairs = static_cast<double>(rows * std::min(kChosen, keys));
      lines.write(name("attention"),
                  {.bytes = pairs * kRowBytes + static_cast<double>(SparseDecode::expand_bytes()),
                   .flops = 2.0 * pairs * static_cast<double>(kShape.num_heads) *
                            static_cast<double>(kShape.row_size() + kShape.rank)},
                  decode.seconds_of_attention());
    }
  }
}

}  // namespace slime::bench
