#pragma once

/// Set of characters as ranges of code points, without surrogates: what one place of a text may hold.

#include <cstdint>
#include <vector>

namespace slime::text {

struct CharRange {
  uint32_t first;
  uint32_t last;  // included
  bool operator==(const CharRange&) const = default;
};

class CharSet final {
 public:
  CharSet() = default;
  CharSet(std::initializer_list<CharRange> ranges);

  void add(CharRange range);
  void add(const CharSet& other);

  bool contains(uint32_t character) const;
  bool empty() const { return ranges_.empty(); }
  int64_t size() const;
  /// Ascending; neither overlapping nor adjacent.
  const std::vector<CharRange>& ranges() const { return ranges_; }

  CharSet complement() const;
  CharSet intersection(const CharSet& other) const;

  bool operator==(const CharSet&) const = default;

 private:
  std::vector<CharRange> ranges_;
};

}  // namespace slime::text
