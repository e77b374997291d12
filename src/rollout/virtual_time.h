#pragma once

/// The logical clock of a rollout: in which order groups finish, as a function of tokens alone.
///
/// Which groups a step keeps, when it refills and where it cuts the samples that are still in
/// flight must not depend on how fast an engine, a reward or a thread happened to be. So the
/// rollout decides by a schedule that it computes beside the real one (docs/decisions/0071):
///
///   - samples wait in line in the order in which they joined;
///   - `num_slots` of them draw at once, one token per tick each; who is first in line gets a slot
///     in the tick in which it becomes free;
///   - a group finishes in the tick in which its last sample ends; groups of one tick are taken by
///     ordinal.
///
/// The length of a sample is a function of its seed and the weights, hence so is the schedule. It
/// follows what really happens: next_groups() moves on only as far as it is certain, which is as
/// far as every sample with a slot has really sampled.
///
///   two slots; samples a b c of 3, 5 and 1 tokens      tick  1  2  3  4  5
///                                              slot 0        a  a  a  c
///                                              slot 1        b  b  b  b  b
///
/// Tokens that a sample has from earlier steps take no time. No engine, no threads, no clock here.

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

namespace slime::rollout {

class VirtualTime {
 public:
  explicit VirtualTime(int64_t num_slots);

  /// A group joins at the present tick. One entry per sample: does it draw tokens in this step?
  /// Those that do wait in line; the others have ended. Returns the number of its first sample;
  /// samples are numbered in the order of joining.
  int64_t join(int64_t group_ordinal, const std::vector<bool>& draws);

  /// The sample has ended after this many tokens.
  void ended(int64_t number, int64_t num_tokens);

  /// Tokens that a sample which has not ended has really sampled so far.
  using NumSampled = std::function<int64_t(int64_t number)>;

  /// Moves to the next tick in which groups finish and returns their ordinals, ascending. Empty:
  /// more has to be known first (awaited()), or nothing is under way.
  std::vector<int64_t> next_groups(const NumSampled& num_sampled);

  /// After an empty next_groups(): the sample that has furthest to go until time can move on, and
  /// how many tokens it has to have sampled. Nothing: no sample with a slot is known to end.
  struct Awaited {
    int64_t number = 0;
    int64_t num_tokens = 0;
  };
  const std::optional<Awaited>& awaited() const { return awaited_; }

  int64_t now() const { return now_; }
  /// Until the present tick.
  bool has_ended(int64_t number) const { return sample(number).is_over; }
  int64_t num_sampled(int64_t number) const;

 private:
  struct Entry {
    int64_t group = 0;
    std::optional<int64_t> begin;   // tick in which it got its slot
    std::optional<int64_t> length;  // in tokens, once it is known
    bool is_over = false;
  };

  const Entry& sample(int64_t number) const { return samples_[static_cast<std::size_t>(number)]; }
  Entry& sample(int64_t number) { return samples_[static_cast<std::size_t>(number)]; }
  void admit();
  /// The next tick in which a sample ends; nothing: not certain yet, or none is known to.
  std::optional<int64_t> next_end(const NumSampled& num_sampled);

  const int64_t num_slots_;
  int64_t now_ = 0;
  std::vector<Entry> samples_;
  std::deque<int64_t> line_;
  std::vector<int64_t> drawing_;                   // with a slot
  std::unordered_map<int64_t, int64_t> num_open_;  // by group: samples that have not ended
  std::vector<int64_t> finished_;                  // groups of the present tick, not returned yet
  std::optional<Awaited> awaited_;
};

}  // namespace slime::rollout
