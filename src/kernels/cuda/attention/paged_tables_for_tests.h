#pragma once

/// Block tables of made-up sequences in a paged cache, as a PagedBatch has them; for tests.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/packed_prompts.h"
#include "kernels/gpu/paged_units.h"
#include "kernels/page.h"

namespace slime::kernels {

struct PagedTables {
  std::vector<int32_t> slots, row_sequence, query_starts{0}, page_starts{0}, pages, last;
  std::vector<int64_t> positions;

  /// A sequence behind the others, in these pages.
  void add(const PagedSpan& span, std::span<const int64_t> ids) {
    const auto sequence = static_cast<int32_t>(last.size());
    for (const int64_t id : ids) pages.push_back(static_cast<int32_t>(id));
    for (int64_t p = span.num_keys - span.num_rows; p < span.num_keys; ++p) {
      const int64_t page = ids[static_cast<std::size_t>(p / kPageTokens)];
      slots.push_back(static_cast<int32_t>(page * kPageTokens + p % kPageTokens));
      row_sequence.push_back(sequence);
      positions.push_back(p);
    }
    close(span.num_rows, static_cast<int64_t>(ids.size()), (span.num_keys - 1) % kPageTokens + 1);
  }

  /// Its rows as sequences of their own, each in the pages up to its key: those of a request that verifies drafts.
  void add_rows(const PagedSpan& span, std::span<const int64_t> ids) {
    for (int64_t keys = span.num_keys - span.num_rows + 1; keys <= span.num_keys; ++keys)
      add({1, keys}, ids.first(static_cast<std::size_t>((keys + kPageTokens - 1) / kPageTokens)));
  }

  /// Rows of a recorded step that belong to nobody, in the page that is nobody's.
  void pad(int64_t rows, int64_t spare_page) {
    const auto nobody = static_cast<int32_t>(last.size());
    for (int64_t i = 0; i < rows; ++i) {
      slots.push_back(static_cast<int32_t>(spare_page * kPageTokens));
      row_sequence.push_back(nobody);
      positions.push_back(0);
      pages.push_back(static_cast<int32_t>(spare_page));
      close(1, 1, 1);
    }
  }

  std::span<const int32_t> pages_of(int64_t sequence) const {
    const auto s = static_cast<std::size_t>(sequence);
    return std::span(pages).subspan(static_cast<std::size_t>(page_starts[s]),
                                    static_cast<std::size_t>(page_starts[s + 1] - page_starts[s]));
  }
  /// What packed attention gathers.
  std::vector<int32_t> pages_of(std::span<const PackedPlan::Context> contexts) const {
    std::vector<int32_t> all;
    for (const auto& [sequence, count] : contexts) {
      const auto some = pages_of(sequence).first(static_cast<std::size_t>(count));
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  void copy_to(PagedBatch& batch) const {
    batch.slot_T = to_gpu(slots, at::kInt);
    batch.row_sequence_T = to_gpu(row_sequence, at::kInt);
    batch.query_starts = to_gpu(query_starts, at::kInt);
    batch.page_starts = to_gpu(page_starts, at::kInt);
    batch.pages = to_gpu(pages, at::kInt);
    batch.last_page_tokens = to_gpu(last, at::kInt);
  }

 private:
  void close(int64_t num_rows, int64_t num_pages, int64_t tokens_of_last_page) {
    query_starts.push_back(query_starts.back() + static_cast<int32_t>(num_rows));
    page_starts.push_back(page_starts.back() + static_cast<int32_t>(num_pages));
    last.push_back(static_cast<int32_t>(tokens_of_last_page));
  }
};

}  // namespace slime::kernels
