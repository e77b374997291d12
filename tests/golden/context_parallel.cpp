#include "context_parallel.h"

#include <algorithm>

#include "core/divide_up.h"
#include "core/error.h"

namespace slime::golden {
namespace {

int64_t chunk_size_of(int64_t length, int64_t cp) { return divide_up(length, 2 * cp); }

/// The response token whose log-prob the logits of a row give; -1: none.
int64_t scored_token(const PackedRow& row, int64_t length, int64_t response_length) {
  const int64_t t = row.position - (length - response_length - 1);
  return t >= 0 && t < response_length ? t : -1;
}

void add_tail(std::vector<PackedRow>& rows, int64_t multiple) {
  const int64_t missing =
      round_up(static_cast<int64_t>(rows.size()), multiple) - static_cast<int64_t>(rows.size());
  for (int64_t i = 0; i < missing; ++i) rows.push_back({-1, i});
}

std::vector<PackedRow> zigzag_rows(std::span<const int64_t> lengths, const ContextLayout& layout) {
  std::vector<PackedRow> rows;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    for (const PositionRange& chunk : zigzag_share(lengths[i], 0, layout.cp, layout.rank).chunks) {
      for (int64_t p = chunk.begin; p < chunk.end; ++p) {
        rows.push_back({static_cast<int64_t>(i), p});
      }
    }
  }
  add_tail(rows, layout.pad_multiple);
  return rows;
}

std::vector<PackedRow> whole_rows(std::span<const int64_t> lengths, int64_t multiple) {
  std::vector<PackedRow> rows;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    for (int64_t p = 0; p < lengths[i]; ++p) rows.push_back({static_cast<int64_t>(i), p});
  }
  add_tail(rows, multiple);
  return rows;
}

std::vector<PackedRow> contiguous_rows(std::span<const int64_t> lengths,
                                       const ContextLayout& layout) {
  const std::vector<PackedRow> all = whole_rows(lengths, layout.cp * layout.pad_multiple);
  const auto share = static_cast<int64_t>(all.size()) / layout.cp;
  const auto first = all.begin() + layout.rank * share;
  return {first, first + share};
}

bool is_zigzag(const ContextLayout& layout) { return !layout.contiguous && layout.cp > 1; }

/// Boundaries of the sequences, in tokens of all ranks together.
std::vector<int64_t> boundaries(std::span<const int64_t> lengths, const ContextLayout& layout) {
  std::vector<int64_t> sums{0};
  for (const int64_t length : lengths) {
    const int64_t held =
        is_zigzag(layout) ? 2 * layout.cp * chunk_size_of(length, layout.cp) : length;
    sums.push_back(sums.back() + held);
  }
  const int64_t padded = round_up(sums.back(), layout.cp * layout.pad_multiple);
  if (padded > sums.back()) sums.push_back(padded);
  return sums;
}

}  // namespace

ZigzagShare zigzag_share(int64_t total_length, int64_t response_length, int64_t cp, int64_t rank) {
  check(rank >= 0 && rank < cp, "a rank is one of its group");
  ZigzagShare share;
  const int64_t c = share.chunk_size = chunk_size_of(total_length, cp);
  share.chunks = {PositionRange{rank * c, (rank + 1) * c},
                  PositionRange{(2 * cp - 1 - rank) * c, (2 * cp - rank) * c}};
  for (std::size_t i = 0; i < 2; ++i) {
    const int64_t begin = std::max(share.chunks[i].begin, total_length - response_length - 1);
    const int64_t end = std::min(share.chunks[i].end, total_length - 1);
    if (begin >= end) continue;
    share.logit_ranges[i] = {begin, end};
    share.token_ranges[i] = {begin + 1, end + 1};
  }
  return share;
}

std::vector<int64_t> owned_response_tokens(int64_t total_length, int64_t response_length,
                                           int64_t cp, int64_t rank) {
  std::vector<int64_t> owned;
  const int64_t prompt_length = total_length - response_length;
  for (const PositionRange& range :
       zigzag_share(total_length, response_length, cp, rank).token_ranges) {
    for (int64_t p = range.begin; p < range.end; ++p) owned.push_back(p - prompt_length);
  }
  return owned;
}

std::vector<PackedRow> local_rows(std::span<const int64_t> lengths, const ContextLayout& layout) {
  if (layout.contiguous) return contiguous_rows(lengths, layout);
  if (layout.cp == 1) return whole_rows(lengths, layout.pad_multiple);
  return zigzag_rows(lengths, layout);
}

PackedShare pack_share(const std::vector<std::vector<TokenId>>& sequences,
                       const std::vector<std::vector<uint8_t>>& masks,
                       const ContextLayout& layout) {
  check(sequences.size() == masks.size(), "each sequence has a mask");
  std::vector<int64_t> lengths;
  for (const auto& tokens : sequences) lengths.push_back(static_cast<int64_t>(tokens.size()));
  PackedShare share;
  for (const PackedRow& row : local_rows(lengths, layout)) {
    const bool is_token = row.sequence >= 0 && row.position < lengths[row.sequence];
    share.tokens.push_back(is_token ? sequences[row.sequence][row.position] : 0);
    int64_t t = -1;
    if (is_token) {
      const auto response_length = static_cast<int64_t>(masks[row.sequence].size());
      t = scored_token(row, lengths[row.sequence], response_length);
    }
    share.trained.push_back(t >= 0 ? masks[row.sequence][t] : 0);
  }
  share.cu_seqlens = boundaries(lengths, layout);
  for (std::size_t i = 1; i < share.cu_seqlens.size(); ++i) {
    share.max_seqlen = std::max(share.max_seqlen, share.cu_seqlens[i] - share.cu_seqlens[i - 1]);
  }
  return share;
}

std::vector<int32_t> align_routed_experts(const std::vector<std::vector<int32_t>>& routed,
                                          std::span<const int64_t> lengths,
                                          const RoutingLayout& routing,
                                          const ContextLayout& layout) {
  const int64_t width = routing.num_layers * routing.topk;
  const std::vector<PackedRow> rows = local_rows(lengths, layout);
  const int64_t share = static_cast<int64_t>(rows.size()) / routing.sequence_parallel;
  std::vector<int32_t> out;
  out.reserve(static_cast<std::size_t>(share * width));
  for (int64_t r = 0; r < share; ++r) {
    const PackedRow& row = rows[routing.sequence_parallel_rank * share + r];
    const int64_t length = row.sequence >= 0 ? lengths[row.sequence] : 0;
    const bool is_recorded = row.sequence >= 0 && row.position < length - 1;
    // The last token's filler is a run of its own, as is the padding behind it.
    const int64_t filler = row.position == length - 1 ? 0 : row.position - length;
    for (int64_t e = 0; e < width; ++e) {
      out.push_back(is_recorded ? routed[row.sequence][row.position * width + e]
                                : static_cast<int32_t>((filler * width + e) % routing.num_experts));
    }
  }
  return out;
}

std::map<int64_t, std::vector<int64_t>> kept_ids_of_rows(std::span<const KeptIds> kept,
                                                         std::span<const int64_t> lengths,
                                                         const ContextLayout& layout,
                                                         int64_t first_id, int64_t num_ids) {
  const std::vector<PackedRow> rows = local_rows(lengths, layout);
  std::map<int64_t, std::vector<int64_t>> out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].sequence < 0) continue;
    const KeptIds& own = kept[rows[r].sequence];
    const auto response_length = static_cast<int64_t>(own.offsets.size()) - 1;
    const int64_t t = scored_token(rows[r], lengths[rows[r].sequence], response_length);
    if (t < 0) continue;
    std::vector<int64_t>& ids = out[static_cast<int64_t>(r)];
    for (int64_t i = own.offsets[t]; i < own.offsets[t + 1]; ++i) {
      const int64_t id = own.ids[i] - first_id;
      if (id >= 0 && id < num_ids) ids.push_back(id);
    }
  }
  return out;
}

}  // namespace slime::golden
