#pragma once

/// Sequences of a step on a GPU: what attention takes for one.
///
/// Rows of a chunk are one, but for a chunk with drafts in a step of decode, of which each row is one: row j sees the
/// tokens before it, of which the last j + 1 have keys of this step, in the pages of its request.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/chunk.h"
#include "kernels/gpu/decode_units.h"
#include "kernels/page.h"

namespace slime::engine {

struct StepSequence {
  const Request* request = nullptr;
  int64_t begin = 0;  // its first row is the request's token there
  int64_t num_rows = 0;
  int64_t num_new_keys =
      1;  // of a single row: the last ones that it sees and that are of this step

  int64_t num_keys() const { return begin + num_rows; }
  int64_t num_pages() const {
    return (num_keys() + kernels::kPageTokens - 1) / kernels::kPageTokens;
  }
};

/// In the order of their rows. `is_decode`: of a step of decode.
std::vector<StepSequence> sequences_of(std::span<const Chunk> chunks, bool is_decode);

/// Sequences of one row, as attention of decode takes them. `first_page`: of the group's table in the list of pages.
/// They refer to the tables of the requests.
std::vector<kernels::DecodeSequence> single_rows(std::span<const StepSequence> sequences,
                                                 std::size_t group, int64_t first_page);

}  // namespace slime::engine
