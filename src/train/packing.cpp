#include "train/packing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace slime::train {
namespace {

/// Whom a token is to visit; nobody in particular: no numbers.
std::span<const int16_t> experts_at(const Sequence& sequence, int64_t position) {
  const int64_t begin = position * sequence.expert_width;
  if (begin >= static_cast<int64_t>(sequence.experts.size())) return {};
  return sequence.experts.subspan(begin, sequence.expert_width);
}

TokenKey key_at(const Sequence& sequence, int64_t position) {
  return slime::key_at(sequence.tokens, sequence.media, position);
}

bool is_same(const Sequence& a, const Sequence& b, int64_t position) {
  return a.rotary_offset == b.rotary_offset && a.tokens[position] == b.tokens[position] &&
         key_at(a, position) == key_at(b, position) &&
         std::ranges::equal(experts_at(a, position), experts_at(b, position));
}

bool is_less(const Sequence& a, const Sequence& b) {
  if (a.rotary_offset != b.rotary_offset) return a.rotary_offset < b.rotary_offset;
  const int64_t common = common_prefix(a, b);
  const auto length = [](const Sequence& x) { return static_cast<int64_t>(x.tokens.size()); };
  if (common == length(a) || common == length(b)) return length(a) < length(b);
  if (a.tokens[common] != b.tokens[common]) return a.tokens[common] < b.tokens[common];
  if (key_at(a, common) != key_at(b, common)) return key_at(a, common) < key_at(b, common);
  return std::ranges::lexicographical_compare(experts_at(a, common), experts_at(b, common));
}

/// Builds the prefix forest of some sequences: segments in depth-first order, and the row of every
/// token.
class Forest {
 public:
  Forest(std::span<const Sequence> sequences, const PackingOptions& options)
      : sequences_(sequences.begin(), sequences.end()),
        num_given_(sequences.size()),
        options_(options) {
    for (std::size_t i = 0; i < num_given_; ++i) {
      if (sequences[i].has_short_scores()) sequences_.push_back(short_side(sequences[i]));
    }
    for (const Sequence& sequence : sequences_) rows_.emplace_back(sequence.tokens.size());
  }

  void build() {
    std::vector<int64_t> order(sequences_.size());
    std::iota(order.begin(), order.end(), 0);
    if (!options_.share_prefixes) {
      for (const int64_t& i : order) grow(std::span(&i, 1), 0, -1);
      return;
    }
    // Sorted, sequences with a common prefix are neighbours.
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return is_less(sequences_[a], sequences_[b]); });
    grow(order, 0, -1);
  }

  /// Tokens of all sequences that need no row of their own.
  int64_t num_saved() const {
    int64_t tokens = 0;
    for (const Sequence& sequence : sequences_)
      tokens += static_cast<int64_t>(sequence.tokens.size());
    return tokens - num_rows_;
  }

  /// Rows, each as often as there are segments above it.
  int64_t num_levels() const {
    int64_t levels = 0;
    std::vector<int64_t> above;  // of each segment; parents come first
    for (const Node& node : nodes_) {
      const int32_t parent = node.segment.parent;
      above.push_back(parent < 0 ? 0 : above[static_cast<std::size_t>(parent)] + 1);
      levels += above.back() * (node.segment.end - node.segment.begin);
    }
    return levels;
  }

  PackedBatch to_batch() const {
    std::vector<int64_t> ids, positions, row_of_score, target, scored;
    for (const Node& node : nodes_) {
      const auto source = tokens(node.sequence);
      for (int64_t depth = node.depth; depth < node.depth + node.segment.end - node.segment.begin;
           ++depth) {
        ids.push_back(source[depth]);
        positions.push_back(depth + sequences_[node.sequence].rotary_offset);
      }
    }
    PackedBatch batch;
    for (const Node& node : nodes_) {
      append_runs(batch.media, sequences_[node.sequence].media, node.depth,
                  node.depth + node.segment.end - node.segment.begin, node.segment.begin);
    }
    // A row is scored once for a token however many sequences go through it: the same state predicts the
    // same token.
    std::vector<int64_t> score_of_row(ids.size(), -1);
    std::map<std::pair<int64_t, TokenId>, int64_t> score_of_target;
    const auto score_at = [&](std::size_t i, std::size_t p) {
      int64_t of_its_own = -1;  // of a token behind the rows that it is scored by
      int64_t& score =
          !sequences_[i].targets.empty()
              ? score_of_target.try_emplace({rows_[i][p - 1], target_at(i, p)}, -1).first->second
          : p < rows_[i].size() ? score_of_row[rows_[i][p]]
                                : of_its_own;
      if (score < 0) {
        score = static_cast<int64_t>(target.size());
        row_of_score.push_back(rows_[i][p - 1]);
      }
      return score;
    };
    std::size_t next_short = num_given_;
    for (std::size_t i = 0; i < num_given_; ++i) {
      const Sequence& sequence = sequences_[i];
      const bool has_short = sequence.has_short_scores();
      for (std::size_t p = sequence.prompt_length; p < rows_[i].size(); ++p) {
        const bool is_short = has_short && static_cast<int64_t>(p) <= sequence.num_sampled_short;
        scored.push_back(score_at(is_short ? next_short : i, p));
        if (scored.back() == static_cast<int64_t>(target.size())) target.push_back(target_at(i, p));
      }
      next_short += has_short ? 1 : 0;
    }
    batch.tokens.ids_T = at::tensor(ids, at::kLong);
    batch.tokens.rotary_row_T = at::tensor(positions, at::kLong);
    for (const Node& node : nodes_) batch.tokens.segments.push_back(node.segment);
    batch.row_S = at::tensor(row_of_score, at::kLong);
    batch.target_S = at::tensor(target, at::kLong);
    batch.scored_T = at::tensor(scored, at::kLong);
    std::vector<int64_t> row_of_token;
    for (const std::vector<int64_t>& rows : std::span(rows_).first(num_given_)) {
      row_of_token.insert(row_of_token.end(), rows.begin(), rows.end());
      batch.lengths.push_back(static_cast<int64_t>(rows.size()));
    }
    batch.row_L = at::tensor(row_of_token, at::kLong);
    batch.experts_UW = experts_of_rows();
    return batch;
  }

 private:
  struct Node {
    model::Segment segment;
    int64_t sequence = 0;  // one that goes through it
    int64_t depth = 0;     // position of its first token
  };

  /// The tokens whose rows score what was sampled before the switch.
  static Sequence short_side(Sequence sequence) {
    sequence.tokens = sequence.tokens.first(static_cast<std::size_t>(sequence.num_sampled_short));
    sequence.experts = sequence.experts.first(
        std::min(sequence.experts.size(),
                 static_cast<std::size_t>(sequence.num_sampled_short * sequence.expert_width)));
    sequence.rotary_offset = 0;
    return sequence;
  }

  std::span<const TokenId> tokens(int64_t i) const { return sequences_[i].tokens; }

  TokenId target_at(std::size_t i, std::size_t p) const {
    const Sequence& sequence = sequences_[i];
    return sequence.targets.empty() ? sequence.tokens[p]
                                    : sequence.targets[p - sequence.prompt_length];
  }

  Tensor experts_of_rows() const {
    int64_t width = 0;
    for (const Sequence& sequence : sequences_) width = std::max(width, sequence.expert_width);
    if (width == 0) return {};
    Tensor experts_UW = at::full({num_rows_, width}, -1, at::kShort);
    auto* row = experts_UW.data_ptr<int16_t>();
    for (const Node& node : nodes_) {
      const int64_t end = node.depth + node.segment.end - node.segment.begin;
      for (int64_t depth = node.depth; depth < end; ++depth, row += width)
        std::ranges::copy(experts_at(sequences_[node.sequence], depth), row);
    }
    return experts_UW;
  }

  /// Adds what `members`, equal up to `depth`, have after it, below segment `parent`. Recursion is
  /// as deep as the forest; it splits members at every level, so never deeper than there are
  /// sequences.
  void grow(std::span<const int64_t> members, int64_t depth, int32_t parent) {
    const auto count = static_cast<int64_t>(members.size());
    // All share what the first and the last in order share.
    const int64_t common = common_prefix(sequences_[members.front()], sequences_[members.back()]);
    if (count == 1 || (common - depth) * (count - 1) >= options_.min_saved_tokens) {
      if (common > depth) parent = add(members, depth, common, parent);
      depth = common;
    }
    std::size_t begin = 0;
    while (begin < members.size()) {
      const auto here = tokens(members[begin]);
      std::size_t end = begin + 1;
      if (static_cast<int64_t>(here.size()) > common) {
        const Sequence& sequence = sequences_[members[begin]];
        while (end < members.size() && is_same(sequences_[members[end]], sequence, common)) ++end;
      }
      if (static_cast<int64_t>(here.size()) > depth)
        grow(members.subspan(begin, end - begin), depth, parent);
      begin = end;
    }
  }

  int32_t add(std::span<const int64_t> members, int64_t depth, int64_t end, int32_t parent) {
    const int64_t begin = num_rows_;
    num_rows_ += end - depth;
    nodes_.push_back({{begin, num_rows_, parent}, members.front(), depth});
    for (const int64_t i : members)
      std::iota(rows_[i].begin() + depth, rows_[i].begin() + end, begin);
    return static_cast<int32_t>(nodes_.size()) - 1;
  }

  std::vector<Sequence> sequences_;  // those given, then the short sides of some of them
  std::size_t num_given_ = 0;
  PackingOptions options_;
  std::vector<std::vector<int64_t>> rows_;  // of each token of each sequence
  std::vector<Node> nodes_;
  int64_t num_rows_ = 0;
};

}  // namespace

PackedBatch pack(std::span<const Sequence> sequences, const PackingOptions& options) {
  for (const Sequence& sequence : sequences) {
    check(sequence.prompt_length >= 1 &&
              sequence.prompt_length <= static_cast<int64_t>(sequence.tokens.size()),
          "a sequence has at least one given token");
    check(sequence.targets.empty() ||
              sequence.targets.size() + sequence.prompt_length == sequence.tokens.size(),
          "each scored position has a target");
  }
  check(!sequences.empty(), "a micro-batch has at least one sequence");
  Forest forest(sequences, options);
  forest.build();
  return forest.to_batch();
}

bool sharing_pays(std::span<const Sequence> sequences, const PackingOptions& options) {
  Forest forest(sequences, options);
  forest.build();
  return static_cast<double>(forest.num_saved()) >
         options.level_cost * static_cast<double>(forest.num_levels());
}

int64_t common_prefix(const Sequence& a, const Sequence& b) {
  if (a.rotary_offset != b.rotary_offset) return 0;
  const int64_t common = slime::common_prefix(a.tokens, a.media, b.tokens, b.media);
  if (a.experts.empty() && b.experts.empty()) return common;
  int64_t same = 0;
  while (same < common && is_same(a, b, same)) ++same;
  return same;
}

std::vector<std::vector<int64_t>> pack_into_bins(std::span<const Sequence> sequences,
                                                 int64_t capacity) {
  std::vector<std::vector<int64_t>> bins;
  std::vector<int64_t> fill;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& sequence = sequences[i];
    const int64_t length = static_cast<int64_t>(sequence.tokens.size()) +
                           (sequence.has_short_scores() ? sequence.num_sampled_short : 0);
    int64_t best = -1, best_added = length + 1;
    for (std::size_t b = 0; b < bins.size(); ++b) {
      int64_t shared = 0;
      for (const int64_t other : bins[b]) {
        shared = std::max(shared, common_prefix(sequences[i], sequences[other]));
      }
      if (fill[b] + length - shared <= capacity && length - shared < best_added) {
        best = static_cast<int64_t>(b);
        best_added = length - shared;
      }
    }
    if (best < 0) {
      best = static_cast<int64_t>(bins.size());
      best_added = length;
      bins.emplace_back();
      fill.push_back(0);
    }
    bins[best].push_back(static_cast<int64_t>(i));
    fill[best] += best_added;
  }
  return bins;
}

}  // namespace slime::train
