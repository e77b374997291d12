#include "kernels/gpu/ordered_levels.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "core/divide_up.h"

namespace slime::kernels {
namespace {

constexpr int64_t kScoreBytes = 2;
constexpr int64_t kLeastRows = 128;  // tiles

int64_t power_above(int64_t rows) {
  return std::max(kLeastRows, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows))));
}

/// Of a pair of so many rows, as planned.
int64_t scratch_bytes(int64_t num_heads, int64_t query_rows, int64_t key_rows) {
  return num_heads * power_above(query_rows) * power_above(key_rows) * kScoreBytes;
}

/// [begin, end) of piece `i` of [first, last).
std::pair<int64_t, int64_t> piece(int64_t first, int64_t last, int64_t i, int64_t most_rows) {
  return {first + i * most_rows, std::min(last, first + (i + 1) * most_rows)};
}

/// Pieces of a pair that lie `shift` away from its diagonal: none has rows of another.
void append_pieces(const AttentionPair& pair, bool is_causal, int64_t shift, int64_t most_rows,
                   std::vector<AttentionPair>& pieces) {
  const int64_t queries = divide_up(pair.query_end - pair.query_begin, most_rows),
                keys = divide_up(pair.key_end - pair.key_begin, most_rows),
                most = std::max(queries, keys);
  if (shift >= most) return;
  for (int64_t i = 0; i < queries; ++i) {
    if (is_causal && i < shift) continue;  // later keys
    const int64_t j = is_causal ? i - shift : (i + shift) % most;
    if (j >= keys) continue;
    const auto [query_begin, query_end] = piece(pair.query_begin, pair.query_end, i, most_rows);
    const auto [key_begin, key_end] = piece(pair.key_begin, pair.key_end, j, most_rows);
    pieces.push_back({query_begin, query_end, key_begin, key_end});
  }
}

}  // namespace

int64_t ordered_rows(int64_t num_heads) {
  int64_t rows = kLeastRows;
  while (scratch_bytes(num_heads, 2 * rows, 2 * rows) <= kOrderedScratchBytes) rows *= 2;
  return rows;
}

int64_t ordered_window_rows(int64_t num_heads, int64_t window) {
  return std::max(ordered_rows(num_heads), 2 * window - 1);
}

int64_t ordered_backward_bytes(const RotaryShape& heads, int64_t rows, int64_t window) {
  constexpr int64_t kElement = 2, kSum = 4;
  const int64_t most =
      window > 0 ? ordered_window_rows(heads.num_heads, window) : ordered_rows(heads.num_heads);
  const int64_t scratch =
      std::min(scratch_bytes(heads.num_heads, rows, rows),
               std::max(kOrderedScratchBytes, scratch_bytes(heads.num_heads, most, most)));
  if (rows <= most) return scratch;
  const int64_t out = heads.num_heads * heads.head_dim,
                in = out + 2 * heads.num_kv_heads * heads.head_dim;
  if (window == 0) return scratch + (kSum + kElement) * rows * in;  // sums, and a level's shares
  const int64_t copies = divide_up(rows, most - (window - 1)) * (window - 1);
  return scratch + kElement * (rows + copies) * 2 * (in + out);  // with gradients
}

std::vector<AttentionLevel> divided_levels(const std::vector<AttentionLevel>& levels,
                                           int64_t most_rows, int64_t window) {
  std::vector<AttentionLevel> divided;
  for (const AttentionLevel& level : levels) {
    if (window > 0 && level.causal) {
      divided.push_back(level);
      continue;
    }
    for (int64_t shift = 0;; ++shift) {
      AttentionLevel pieces{{}, level.causal && shift == 0};
      for (const AttentionPair& pair : level.pairs)
        append_pieces(pair, level.causal, shift, most_rows, pieces.pairs);
      if (pieces.pairs.empty() && shift > 0) break;
      divided.push_back(std::move(pieces));
    }
  }
  return divided;
}

std::vector<AttentionLevel> ordered_launches(const AttentionLevel& level, int64_t num_heads) {
  std::map<std::pair<int64_t, int64_t>, std::vector<AttentionPair>> of_lengths;
  for (const AttentionPair& pair : level.pairs) {
    of_lengths[{power_above(pair.query_end - pair.query_begin),
                power_above(pair.key_end - pair.key_begin)}]
        .push_back(pair);
  }
  std::vector<AttentionLevel> launches;
  for (const auto& [rows, pairs] : of_lengths) {
    const int64_t each = scratch_bytes(num_heads, rows.first, rows.second);
    // A power of two, as plans are for powers of two.
    const auto most = static_cast<std::ptrdiff_t>(
        std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, kOrderedScratchBytes / each))));
    for (auto from = pairs.begin(); from != pairs.end();) {
      const auto to = from + std::min(most, pairs.end() - from);
      launches.push_back({{from, to}, level.causal});
      from = to;
    }
  }
  return launches;
}

}  // namespace slime::kernels
