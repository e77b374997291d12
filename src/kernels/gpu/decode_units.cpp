#include "kernels/gpu/decode_units.h"

#include <algorithm>
#include <numeric>

#include "core/divide_up.h"
#include "core/error.h"

namespace slime::kernels {
namespace {

constexpr int64_t kSharingCost = 6;  // pages per member, of a key-value head
constexpr int64_t kMostShared = 2;   // shared segments of a sequence
constexpr int64_t kLeastSharedIterations = 4;
/// What an iteration (each warp of a thread block reads one page) costs: with several row sets the
/// warps take the same page, which moves fewer bytes but waits as long. And what a segment costs
/// that is not its pages: adding up the warps' results, of more rows where it is shared.
constexpr int64_t kIterationCost = 10, kIterationCostOfTwoSets = 7, kIterationCostOfFourSets = 5;
constexpr int64_t kSegmentCost = 3, kSharedSegmentCost = 8;

/// Sequences that read the same pages [begin, end).
struct Run {
  std::vector<int32_t> members;
  int64_t begin = 0;
  int64_t end = 0;
  int row_sets = 1;
  int64_t iteration_pages = kDecodeWarps;  // with one row set
  int64_t first_fresh = 0;  // its first page that gets keys of this step; may be beyond `end`

  int64_t pages_per_iteration() const { return iteration_pages / row_sets; }
  int64_t iterations() const { return divide_up(end - begin, pages_per_iteration()); }
  /// A slice of a shared run leaves a record for each member: it should be worth that.
  int64_t least_iterations() const { return row_sets == 1 ? 1 : kLeastSharedIterations; }
  int64_t segment_cost() const { return row_sets == 1 ? kSegmentCost : kSharedSegmentCost; }
  int64_t iteration_cost() const {
    return row_sets == 1   ? kIterationCost
           : row_sets == 2 ? kIterationCostOfTwoSets
                           : kIterationCostOfFourSets;
  }
};

/// All runs of a step, those of a sequence in the order of its keys and near each other.
class Runs {
 public:
  Runs(std::span<const DecodeSequence> sequences, const DecodeOptions& options)
      : sequences_(sequences), most_members_(kMostDecodeRows / options.group), options_(options) {
    std::vector<int32_t> all(sequences.size());
    std::iota(all.begin(), all.end(), 0);
    if (options.shares_prompts && most_members_ > 1) {
      divide(all, 0, 0, 0);
    } else {
      for (const int32_t s : all) add({s}, 0, num_pages(s));
    }
  }
  std::vector<Run> take() { return std::move(runs_); }

 private:
  int64_t num_pages(int32_t s) const { return static_cast<int64_t>(sequences_[s].pages.size()); }
  int64_t first_fresh_page(int32_t s) const {
    return (sequences_[s].num_keys - sequences_[s].num_new_keys) / kPageTokens;
  }
  /// Pages that others may read too: not the one that gets its key.
  std::span<const int32_t> old_pages(int32_t s) const {
    return sequences_[s].pages.first(num_pages(s) - 1);
  }

  void add(std::vector<int32_t> members, int64_t begin, int64_t end) {
    if (begin >= end) return;
    const auto rows = static_cast<int>(members.size() * options_.group);
    int64_t first_fresh = end;
    for (const int32_t s : members) first_fresh = std::min(first_fresh, first_fresh_page(s));
    runs_.push_back({std::move(members), begin, end, decode_row_sets(rows),
                     options_.iteration_pages, first_fresh});
  }

  /// The members agree on pages [0, agreed), and pages [0, done) are in runs already. Groups them
  /// by their next page.
  void divide(std::vector<int32_t> members, int64_t agreed, int64_t done, int64_t num_shared) {
    const auto next_page = [&](int32_t s) {
      const auto pages = old_pages(s);
      return agreed < static_cast<int64_t>(pages.size()) ? int64_t{pages[agreed]} : int64_t{-1};
    };
    std::stable_sort(members.begin(), members.end(),
                     [&](int32_t a, int32_t b) { return next_page(a) < next_page(b); });
    for (auto begin = members.begin(); begin != members.end();) {
      const int64_t page = next_page(*begin);
      const auto end =
          std::find_if(begin, members.end(), [&](int32_t s) { return next_page(s) != page; });
      if (page < 0 || end - begin == 1 || num_shared == kMostShared) {
        for (auto it = begin; it != end; ++it) add({*it}, done, num_pages(*it));
      } else {
        share({begin, end}, agreed, done, num_shared);
      }
      begin = end;
    }
  }

  /// The members agree on one page more than `agreed`, at least.
  void share(std::vector<int32_t> members, int64_t agreed, int64_t done, int64_t num_shared) {
    const auto first = old_pages(members[0]).subspan(agreed);
    auto common = static_cast<int64_t>(first.size());
    for (const int32_t s : members) {
      const auto mine = old_pages(s).subspan(agreed);
      const auto length = std::min<int64_t>(common, static_cast<int64_t>(mine.size()));
      common =
          std::mismatch(first.begin(), first.begin() + length, mine.begin()).first - first.begin();
    }
    agreed += common;
    const auto count = static_cast<int64_t>(members.size());
    const int64_t num_segments = divide_up(count, most_members_);
    if ((count - num_segments) * (agreed - done) > kSharingCost * count) {
      for (int64_t i = 0; i < num_segments; ++i) {
        add({members.begin() + count * i / num_segments,
             members.begin() + count * (i + 1) / num_segments},
            done, agreed);
      }
      done = agreed;
      ++num_shared;
    }
    divide(std::move(members), agreed, done, num_shared);
  }

  std::span<const DecodeSequence> sequences_;
  const int64_t most_members_;
  const DecodeOptions& options_;
  std::vector<Run> runs_;
};

/// Numbers the records of each sequence in the order of its segments; a sequence with one segment
/// needs none.
void number_records(DecodePlan& plan, int64_t num_launched) {
  std::vector<int32_t> count(num_launched, 0);
  for (const DecodeMember& member : plan.members) ++count[member.sequence];
  plan.record_starts.assign(1, 0);
  for (const int32_t n : count)
    plan.record_starts.push_back(plan.record_starts.back() + (n > 1 ? n : 0));
  std::vector<int32_t> next(plan.record_starts.begin(), plan.record_starts.end() - 1);
  for (DecodeMember& member : plan.members)
    if (count[member.sequence] > 1) member.record = next[member.sequence]++;
}

}  // namespace

DecodeOptions latent_decode_options(int64_t num_heads, int64_t num_processors) {
  constexpr int64_t kHeads = 16, kStagePages = 2;
  return {1, divide_up(num_heads, kHeads), num_processors, /*shares_prompts=*/false, kStagePages};
}

DecodeLimits decode_limits(int64_t num_launched, const DecodeOptions& options) {
  DecodeLimits limits;
  limits.units = std::max<int64_t>(1, options.blocks_at_once / options.num_kv_heads);
  const int64_t most_members =
      options.shares_prompts ? std::max<int64_t>(1, kMostDecodeRows / options.group) : 1;
  // Each unit but the first splits one run.
  limits.segments = (1 + kMostShared) * num_launched + limits.units;
  limits.members = (1 + kMostShared) * num_launched + limits.units * most_members;
  limits.records = limits.members;
  return limits;
}

DecodePlan plan_decode(std::span<const DecodeSequence> sequences, int64_t num_launched,
                       const DecodeOptions& options) {
  check(static_cast<int64_t>(sequences.size()) <= num_launched,
        "no more sequences than the kernels are launched for");
  check(options.group <= kMostDecodeRows, "the query heads of a key-value head fit into a segment");
  DecodePlan plan;
  plan.room = decode_limits(num_launched, options);
  const std::vector<Run> runs = Runs(sequences, options).take();
  int64_t cost = 0;
  for (const Run& run : runs) cost += run.iterations() * run.iteration_cost() + run.segment_cost();
  // Splitting a run makes one segment more.
  const int64_t cost_per_unit =
      std::max(kIterationCost, divide_up(cost, plan.room.units) + kSegmentCost);

  // Units end where their share of the cost ends, rounded up to a whole iteration.
  int64_t spent = 0;
  for (const Run& run : runs) {
    for (int64_t begin = run.begin; begin < run.end;) {
      auto units = static_cast<int64_t>(plan.unit_starts.size());
      if (units == 0 ||
          (units < plan.room.units && spent + run.segment_cost() >= units * cost_per_unit)) {
        plan.unit_starts.push_back(static_cast<int32_t>(plan.segments.size()));
        ++units;
      }
      const int64_t left = units * cost_per_unit - spent - run.segment_cost();
      const int64_t iterations =
          std::max(run.least_iterations(), divide_up(left, run.iteration_cost()));
      int64_t end = begin + iterations * run.pages_per_iteration();
      const bool is_rest_short = run.end - end < run.least_iterations() * run.pages_per_iteration();
      if (is_rest_short || units == plan.room.units) end = run.end;
      spent += divide_up(end - begin, run.pages_per_iteration()) * run.iteration_cost() +
               run.segment_cost();

      const DecodeSequence& sequence = sequences[run.members[0]];
      DecodeSegment segment;
      segment.first_member = static_cast<int32_t>(plan.members.size());
      segment.num_members = static_cast<int32_t>(run.members.size());
      segment.pages_offset = static_cast<int32_t>(sequence.pages_offset + begin);
      segment.num_pages = static_cast<int32_t>(end - begin);
      segment.first_key = static_cast<int32_t>(begin * kPageTokens);
      if (end == static_cast<int64_t>(sequence.pages.size()))
        segment.last_tokens = static_cast<int32_t>((sequence.num_keys - 1) % kPageTokens + 1);
      segment.num_fresh =
          static_cast<int32_t>(std::clamp<int64_t>(end - run.first_fresh, 0, end - begin));
      plan.segments.push_back(segment);
      for (const int32_t s : run.members)
        plan.members.push_back({static_cast<int32_t>(sequences[s].index),
                                static_cast<int32_t>(sequences[s].row), -1, 0});
      begin = end;
    }
  }
  plan.unit_starts.resize(plan.room.units + 1, static_cast<int32_t>(plan.segments.size()));
  number_records(plan, num_launched);
  check(static_cast<int64_t>(plan.segments.size()) <= plan.room.segments &&
            static_cast<int64_t>(plan.members.size()) <= plan.room.members,
        "a plan of decode fits into its room");
  return plan;
}

}  // namespace slime::kernels
