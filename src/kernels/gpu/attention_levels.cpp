#include "kernels/gpu/attention_levels.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace slime::kernels {
namespace {

using Levels = std::vector<AttentionLevel>;

std::optional<Levels> levels_of_tree(const std::vector<Segment>& segments, int64_t window) {
  Levels levels(1);
  levels[0].causal = true;
  std::vector<std::size_t> chain;  // from a root to the segment before
  const auto close = [&](int64_t end) {
    const Segment& segment = segments[chain.back()];
    const std::size_t level = chain.size();
    chain.pop_back();
    if (end == segment.end) return;  // nobody continues it
    if (levels.size() <= level) levels.resize(level + 1);
    levels[level].pairs.push_back({segment.end, end, segment.begin, segment.end});
  };
  int64_t end = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    while (!chain.empty() && static_cast<int32_t>(chain.back()) != segment.parent)
      close(segment.begin);
    if (chain.empty() && segment.parent >= 0) return std::nullopt;
    chain.push_back(i);
    levels[0].pairs.push_back({segment.begin, segment.end, segment.begin, segment.end});
    end = segment.end;
    if (window > 0) {
      int64_t length = 0;
      for (const std::size_t ancestor : chain)
        length += segments[ancestor].end - segments[ancestor].begin;
      if (chain.size() > 1 && length > window) return std::nullopt;
    }
  }
  while (!chain.empty()) close(end);
  return levels;
}

bool overlap(int64_t begin, int64_t end, int64_t other_begin, int64_t other_end) {
  return begin < other_end && other_begin < end;
}

/// Pairs whose queries are the same and whose keys touch become one.
std::vector<AttentionPair> joined_keys(std::vector<AttentionPair> pairs) {
  std::ranges::sort(pairs, {}, [](const AttentionPair& pair) {
    return std::tuple(pair.query_begin, pair.query_end, pair.key_begin);
  });
  std::vector<AttentionPair> joined;
  for (const AttentionPair& pair : pairs) {
    if (!joined.empty() && joined.back().query_begin == pair.query_begin &&
        joined.back().query_end == pair.query_end && joined.back().key_end == pair.key_begin) {
      joined.back().key_end = pair.key_end;
    } else {
      joined.push_back(pair);
    }
  }
  return joined;
}

/// The first level that has none of its rows, or a new one.
void place(const AttentionPair& pair, Levels& levels) {
  for (std::size_t i = 1; i < levels.size(); ++i) {
    const bool is_free = std::ranges::none_of(levels[i].pairs, [&](const AttentionPair& other) {
      return overlap(pair.query_begin, pair.query_end, other.query_begin, other.query_end) ||
             overlap(pair.key_begin, pair.key_end, other.key_begin, other.key_end);
    });
    if (!is_free) continue;
    levels[i].pairs.push_back(pair);
    return;
  }
  levels.push_back({{pair}, false});
}

/// Pieces whose rows lie in any order, and of which some are only looked at. A run is pieces that
/// continue one another row by row, all with queries: causal as a whole.
std::optional<Levels> levels_of_pieces(const std::vector<Segment>& segments, int64_t window) {
  struct Run {
    int64_t begin, end;
    int32_t parent;  // of its first piece
  };
  std::vector<Run> runs;
  std::map<std::size_t, std::size_t> ends_run;  // a piece's run, while the piece is its last
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& piece = segments[i];
    if (!piece.has_queries) continue;
    const auto before =
        piece.parent < 0 ? ends_run.end() : ends_run.find(static_cast<std::size_t>(piece.parent));
    if (before == ends_run.end() || runs[before->second].end != piece.begin) {
      ends_run[i] = runs.size();
      runs.push_back({piece.begin, piece.end, piece.parent});
    } else {
      runs[before->second].end = piece.end;
      ends_run[i] = before->second;
      ends_run.erase(before);
    }
  }
  Levels levels(1);
  levels[0].causal = true;
  std::map<int32_t, std::vector<const Run*>> looking_at;  // runs, by an ancestor
  for (const Run& run : runs) {
    levels[0].pairs.push_back({run.begin, run.end, run.begin, run.end});
    int64_t length = run.end - run.begin;
    for (int32_t i = run.parent; i >= 0; i = segments[static_cast<std::size_t>(i)].parent) {
      looking_at[i].push_back(&run);
      length +=
          segments[static_cast<std::size_t>(i)].end - segments[static_cast<std::size_t>(i)].begin;
    }
    if (window > 0 && run.parent >= 0 && length > window) return std::nullopt;
  }
  std::vector<AttentionPair> pairs;
  for (auto& [i, queries] : looking_at) {
    const Segment& keys = segments[static_cast<std::size_t>(i)];
    std::ranges::sort(queries, {}, &Run::begin);
    for (std::size_t j = 0; j < queries.size(); ++j) {
      if (j > 0 && pairs.back().query_end == queries[j]->begin) {
        pairs.back().query_end = queries[j]->end;
      } else {
        pairs.push_back({queries[j]->begin, queries[j]->end, keys.begin, keys.end});
      }
    }
  }
  for (const AttentionPair& pair : joined_keys(std::move(pairs))) place(pair, levels);
  return levels;
}

}  // namespace

bool are_all_queried(const std::vector<Segment>& segments) {
  return std::ranges::all_of(segments, &Segment::has_queries);
}

std::optional<std::vector<AttentionLevel>> attention_levels(const std::vector<Segment>& segments,
                                                            int64_t window) {
  return are_all_queried(segments) ? levels_of_tree(segments, window)
                                   : levels_of_pieces(segments, window);
}

}  // namespace slime::kernels
