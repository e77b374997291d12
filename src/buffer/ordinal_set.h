#pragma once

/// A set of ordinals as intervals: prompts are given out in order and end nearly in order, so ten
/// million of them that are final are a few intervals.

#include <cstdint>
#include <map>

namespace slime::buffer {

class OrdinalSet {
 public:
  /// False: it was there.
  bool insert(int64_t ordinal);
  /// One that lies behind all that are there, and does not touch them.
  void append_interval(int64_t first, int64_t last);
  bool contains(int64_t ordinal) const;
  /// first -> last; two never touch.
  const std::map<int64_t, int64_t>& intervals() const { return intervals_; }
  int64_t size() const { return size_; }
  /// Of neighbours without a gap: what memory goes with.
  int64_t num_intervals() const { return static_cast<int64_t>(intervals_.size()); }

 private:
  std::map<int64_t, int64_t> intervals_;  // first -> last; two never touch
  int64_t size_ = 0;
};

}  // namespace slime::buffer
