#include "model/context_rows.h"

#include <ATen/ATen.h>

#include "core/error.h"

namespace slime::model {
namespace {

/// Rows [begin, end) of a segment at one rank.
struct Piece {
  int64_t begin = 0;
  int64_t end = 0;
  int rank = 0;
};

/// In the order of the rows, none empty.
std::vector<Piece> pieces_of(const Segment& segment, int64_t num_rows, int ranks,
                             bool is_contiguous) {
  std::vector<Piece> pieces;
  const auto add = [&](int64_t begin, int64_t end, int rank) {
    if (begin < end) pieces.push_back({begin, end, rank});
  };
  if (is_contiguous) {
    for (int rank = 0; rank < ranks; ++rank) {
      add(std::max(segment.begin, num_rows * rank / ranks),
          std::min(segment.end, num_rows * (rank + 1) / ranks), rank);
    }
    return pieces;
  }
  const int64_t size = segment.end - segment.begin, count = 2 * int64_t{ranks};
  for (int64_t i = 0; i < count; ++i) {
    add(segment.begin + size * i / count, segment.begin + size * (i + 1) / count,
        static_cast<int>(i < ranks ? i : count - 1 - i));
  }
  return pieces;
}

}  // namespace

ContextRows::ContextRows(const TokenBatch& whole, const comm::Mesh& mesh) : ranks(mesh.cp()) {
  const int64_t num_rows = whole.num_tokens();
  if (ranks.is_alone()) {
    own = whole;
    own_L = place_T = at::arange(num_rows, at::kLong);
    of_rank = {{0, num_rows}};
    pieces = whole.segments;
    return;
  }
  std::vector<std::vector<Piece>> of_segment;
  std::vector<int64_t> counts(static_cast<std::size_t>(ranks.size()), 0);
  for (const Segment& segment : whole.segments) {
    of_segment.push_back(
        pieces_of(segment, num_rows, ranks.size(), mesh.sizes().contiguous_context));
    for (const Piece& piece : of_segment.back())
      counts[static_cast<std::size_t>(piece.rank)] += piece.end - piece.begin;
  }
  int64_t begin = 0;
  for (const int64_t count : counts) {
    of_rank.push_back({begin, begin + count});
    begin += count;
  }
  check(begin == num_rows, "each row of the batch has a rank");

  std::vector<comm::Range> next = of_rank;  // the gathered rows that are left for each rank
  std::vector<int32_t> last_piece;          // of each segment
  std::vector<int64_t> own_rows;
  for (std::size_t s = 0; s < whole.segments.size(); ++s) {
    const int32_t parent = whole.segments[s].parent;
    int32_t before = parent < 0 ? -1 : last_piece[static_cast<std::size_t>(parent)];
    for (const Piece& piece : of_segment[s]) {
      int64_t& row = next[static_cast<std::size_t>(piece.rank)].begin;
      const int64_t end = row + piece.end - piece.begin;
      pieces.push_back({row, end, before, piece.rank == ranks.rank()});
      before = static_cast<int32_t>(pieces.size()) - 1;
      row = end;
      if (piece.rank != ranks.rank()) continue;
      for (int64_t i = piece.begin; i < piece.end; ++i) own_rows.push_back(i);
    }
    last_piece.push_back(before);
  }
  own_L = at::tensor(own_rows, at::kLong);
  place_T = at::full({num_rows}, -1, at::kLong);
  place_T.index_put_({own_L}, at::arange(own_L.size(0), at::kLong));
  const Tensor own_on_device_L = own_L.to(whole.ids_T.device());
  own.ids_T = whole.ids_T.index_select(0, own_on_device_L);
  own.rotary_row_T = whole.rotary_row_T.index_select(0, own_on_device_L);
  if (!whole.media_row_M.defined()) return;
  const Tensor place_M = place_T.index_select(0, whole.media_row_M.cpu());
  const Tensor own_M = place_M.ge(0).nonzero().squeeze(1);
  const auto device = whole.ids_T.device();
  own.media_row_M = place_M.index_select(0, own_M).to(device);
  own.media_MH = whole.media_MH.index_select(0, own_M.to(device));
}

}  // namespace slime::model
