#include "engine/step_sequences.h"

#include "engine/page_tables.h"

namespace slime::engine {

std::vector<StepSequence> sequences_of(std::span<const Chunk> chunks, bool is_decode) {
  std::vector<StepSequence> sequences;
  sequences.reserve(chunks.size());
  for (const Chunk& chunk : chunks) {
    const int64_t begin = chunk.request->num_computed;
    if (!is_decode || chunk.num_drafts == 0) {
      sequences.push_back({chunk.request, begin, chunk.num_tokens});
      continue;
    }
    for (int64_t row = 0; row < chunk.num_tokens; ++row)
      sequences.push_back({chunk.request, begin + row, 1, row + 1});
  }
  return sequences;
}

std::vector<kernels::DecodeSequence> single_rows(std::span<const StepSequence> sequences,
                                                 std::size_t group, int64_t first_page) {
  std::vector<kernels::DecodeSequence> single;
  int64_t row = 0, page = first_page;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const StepSequence& sequence = sequences[i];
    if (sequence.num_rows == 1) {
      const std::span<const PageId> pages(table_of(*sequence.request, group));
      single.push_back({static_cast<int64_t>(i), row, sequence.num_keys(),
                        pages.first(static_cast<std::size_t>(sequence.num_pages())), page,
                        sequence.num_new_keys});
    }
    row += sequence.num_rows;
    page += sequence.num_pages();
  }
  return single;
}

}  // namespace slime::engine
