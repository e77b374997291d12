#include "kernels/cpu/tree_attention_pages.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cpu/paged_attention.h"
#include "kernels/cpu/thread_pool.h"

namespace slime::kernels::cpu {
namespace {

/// Which row of the batch is in each slot of a page; -1: none.
using PageRows = std::array<int64_t, kPageTokens>;

/// The pages of all segments, and of each the list of those that its queries see.
struct SegmentPages {
  std::vector<PageRows> rows;
  std::vector<std::vector<int32_t>> of_segment;
  std::vector<int64_t> ends;  // positions of a segment's end, counted from the root of its chain

  explicit SegmentPages(const std::vector<Segment>& segments) {
    for (const Segment& segment : segments) {
      const bool is_root = segment.parent < 0;
      const auto parent = static_cast<std::size_t>(is_root ? 0 : segment.parent);
      const int64_t begin = is_root ? 0 : ends[parent], whole = begin / kPageTokens;
      std::vector<int32_t> pages;
      if (!is_root) pages.assign(of_segment[parent].begin(), of_segment[parent].begin() + whole);
      // A page that ancestors have begun goes on in a copy.
      PageRows page;
      page.fill(-1);
      if (begin % kPageTokens != 0)
        page = rows[static_cast<std::size_t>(of_segment[parent][static_cast<std::size_t>(whole)])];
      std::fill(page.begin() + begin % kPageTokens, page.end(), -1);
      const int64_t end = begin + segment.end - segment.begin;
      for (int64_t position = begin; position < end; ++position) {
        page[static_cast<std::size_t>(position % kPageTokens)] = segment.begin + position - begin;
        if ((position + 1) % kPageTokens != 0 && position + 1 < end) continue;
        pages.push_back(static_cast<int32_t>(rows.size()));
        rows.push_back(page);
        page.fill(-1);
      }
      of_segment.push_back(std::move(pages));
      ends.push_back(end);
    }
  }

  std::vector<PagedSequence> sequences(const std::vector<Segment>& segments) const {
    std::vector<PagedSequence> out;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      if (segments[i].has_queries)
        out.push_back({of_segment[i].data(), segments[i].begin, segments[i].end - segments[i].begin,
                       ends[i]});
    }
    return out;
  }
};

/// Numbers as they lie: float32, or bfloat16 in 16 bits.
template <typename T>
void write_pages(const T* heads_TE, const std::vector<PageRows>& pages, const RotaryShape& shape,
                 T* keys, T* values) {
  const int64_t dim = shape.head_dim, stride = value_stride(dim), kv_heads = shape.num_kv_heads,
                width = (shape.num_heads + 2 * kv_heads) * dim;
  parallel_ranges(static_cast<int64_t>(pages.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t page = begin; page < end; ++page) {
      for (int64_t slot = 0; slot < kPageTokens; ++slot) {
        const int64_t row = pages[static_cast<std::size_t>(page)][static_cast<std::size_t>(slot)];
        if (row < 0) continue;
        for (int64_t head = 0; head < kv_heads; ++head) {
          const T* key = heads_TE + row * width + (shape.num_heads + head) * dim;
          T* to = keys + (page * kv_heads + head) * dim * kPageTokens + slot;
          for (int64_t d = 0; d < dim; ++d) to[d * kPageTokens] = key[d];
          std::copy_n(key + kv_heads * dim, dim,
                      values + ((page * kv_heads + head) * kPageTokens + slot) * stride);
        }
      }
    }
  });
}

float to_wide(float x) { return x; }
float to_wide(at::BFloat16 x) { return static_cast<float>(x); }

template <typename T>
void write_queries(const T* heads_TE, int64_t tokens, const RotaryShape& shape, float scale,
                   float* queries) {
  const int64_t dim = shape.head_dim, stride = value_stride(dim),
                group = shape.num_heads / shape.num_kv_heads,
                width = (shape.num_heads + 2 * shape.num_kv_heads) * dim;
  constexpr int64_t kGrain = 16;
  parallel_ranges(tokens, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < shape.num_heads; ++head) {
        const T* from = heads_TE + row * width + head * dim;
        float* to = queries + ((head / group * tokens + row) * group + head % group) * stride;
        for (int64_t d = 0; d < dim; ++d) to[d] = to_wide(from[d]) * scale;
      }
    }
  });
}

}  // namespace

void tree_attention_pages(const at::Tensor& heads_TE, const std::vector<Segment>& segments,
                          const RotaryShape& shape, const TreeAttentionShape& attention,
                          const at::Tensor& sinks_N, const at::Tensor& y_TC,
                          const at::Tensor& logsumexp_TN) {
  const SegmentPages pages(segments);
  const PagedPlan plan =
      make_paged_plan(pages.sequences(segments), shape.num_heads / shape.num_kv_heads);
  if (plan.tiles.empty()) return;
  const bool is_float = heads_TE.scalar_type() == at::kFloat;
  const auto count = static_cast<int64_t>(pages.rows.size()), kv_heads = shape.num_kv_heads;
  // Slots without a token have no weight, which makes nothing of a NaN.
  const at::Tensor keys = at::zeros({count, kv_heads, shape.head_dim, kPageTokens},
                                    heads_TE.options()),
                   values = at::zeros({count, kv_heads, kPageTokens, value_stride(shape.head_dim)},
                                      heads_TE.options());
  // Queries are counted up to the last row that has some (paged_attention.h).
  const int64_t rows = plan.sequences.back().first_row + plan.sequences.back().num_rows;
  const at::Tensor queries = at::empty({rows * shape.num_heads * value_stride(shape.head_dim)},
                                       heads_TE.options().dtype(at::kFloat));
  const auto scale = static_cast<float>(attention.scale);
  const auto prepare = [&](auto number) {
    using T = decltype(number);
    const T* heads = heads_TE.const_data_ptr<T>();
    write_pages(heads, pages.rows, shape, keys.data_ptr<T>(), values.data_ptr<T>());
    write_queries(heads, rows, shape, scale, queries.data_ptr<float>());
  };
  is_float ? prepare(float{}) : prepare(at::BFloat16{});
  const at::Tensor sinks = sinks_N.defined() ? sinks_N.to(at::kFloat).contiguous() : at::Tensor();
  PagedAttentionCall call;
  call.out_TE = y_TC.data_ptr();
  call.activations = call.storage = is_float ? FloatKind::kFloat32 : FloatKind::kBFloat16;
  call.keys = keys.data_ptr();
  call.values = values.data_ptr();
  call.num_heads = shape.num_heads;
  call.num_kv_heads = kv_heads;
  call.head_dim = shape.head_dim;
  call.scale = scale;
  call.cap = static_cast<float>(attention.cap);
  call.window = attention.window;
  call.sinks = sinks.defined() ? sinks.const_data_ptr<float>() : nullptr;
  call.query_scratch = queries.data_ptr<float>();
  call.logsumexp_TN = logsumexp_TN.data_ptr<float>();
  call.plan = &plan;
  attend_prepared_pages(call);
}

void latent_attention_pages(const at::Tensor& heads_TE, const at::Tensor& rotary_row_T,
                            const at::Tensor& cos_PR, const at::Tensor& sin_PR,
                            const std::vector<Segment>& segments, const RotaryShape& shape,
                            const TreeAttentionShape& attention, const at::Tensor& y_TC) {
  const SegmentPages pages(segments);
  const PagedPlan plan = make_paged_plan(pages.sequences(segments), shape.num_heads);
  if (plan.tiles.empty()) return;
  const bool is_float = heads_TE.scalar_type() == at::kFloat;
  const auto count = static_cast<int64_t>(pages.rows.size());
  const at::Tensor values =
      at::zeros({count, kPageTokens, value_stride(shape.head_dim)}, heads_TE.options());
  const at::Tensor queries =
      at::empty({heads_TE.size(0) * shape.num_heads * value_stride(shape.head_dim)},
                heads_TE.options().dtype(at::kFloat));
  PagedAttentionCall call;
  call.qkv_TE = heads_TE.const_data_ptr();
  call.out_TE = y_TC.data_ptr();
  call.activations = call.storage = is_float ? FloatKind::kFloat32 : FloatKind::kBFloat16;
  call.values = values.data_ptr();
  call.num_heads = shape.num_heads;
  call.num_kv_heads = 1;
  call.head_dim = shape.head_dim;
  call.values_are_keys = true;
  call.scale = static_cast<float>(attention.scale);
  call.cap = static_cast<float>(attention.cap);
  call.window = attention.window;
  call.cos_PR = cos_PR.const_data_ptr<float>();
  call.sin_PR = sin_PR.const_data_ptr<float>();
  call.rotary_half = cos_PR.size(1);
  call.rotary_row_T = rotary_row_T.const_data_ptr<int64_t>();
  call.query_scratch = queries.data_ptr<float>();
  call.plan = &plan;
  prepare_pages(call);
  // Pages that go on behind an ancestor's rows have these too, from where they were written first.
  std::vector<std::pair<int64_t, int64_t>> place(static_cast<std::size_t>(heads_TE.size(0)),
                                                 {-1, -1});
  for (int64_t page = 0; page < count; ++page) {
    for (int64_t slot = 0; slot < kPageTokens; ++slot) {
      const int64_t row =
          pages.rows[static_cast<std::size_t>(page)][static_cast<std::size_t>(slot)];
      if (row < 0) continue;
      auto& first = place[static_cast<std::size_t>(row)];
      if (first.first < 0) {
        first = {page, slot};
      } else {
        values[page][slot].copy_(values[first.first][first.second]);
      }
    }
  }
  attend_prepared_pages(call);
}

}  // namespace slime::kernels::cpu
