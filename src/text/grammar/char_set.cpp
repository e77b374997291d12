#include "text/grammar/char_set.h"

#include <algorithm>

namespace slime::text {
namespace {

constexpr uint32_t kLastCharacter = 0x10ffff;
constexpr CharRange kSurrogates{0xd800, 0xdfff};

}  // namespace

CharSet::CharSet(std::initializer_list<CharRange> ranges) {
  for (const CharRange& range : ranges) add(range);
}

void CharSet::add(CharRange range) {
  range.last = std::min(range.last, kLastCharacter);
  if (range.first > range.last) return;
  if (range.first <= kSurrogates.last && range.last >= kSurrogates.first) {
    if (range.first < kSurrogates.first) add({range.first, kSurrogates.first - 1});
    if (range.last > kSurrogates.last) add({kSurrogates.last + 1, range.last});
    return;
  }
  // Those that overlap the new one or touch it become part of it.
  auto at = std::lower_bound(
      ranges_.begin(), ranges_.end(), range.first,
      [](const CharRange& one, uint32_t first) { return uint64_t{one.last} + 1 < first; });
  auto end = at;
  for (; end != ranges_.end() && end->first <= range.last + 1; ++end) {
    range.first = std::min(range.first, end->first);
    range.last = std::max(range.last, end->last);
  }
  at = ranges_.erase(at, end);
  ranges_.insert(at, range);
}

void CharSet::add(const CharSet& other) {
  for (const CharRange& range : other.ranges_) add(range);
}

bool CharSet::contains(uint32_t character) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const CharRange& range) {
    return range.first <= character && character <= range.last;
  });
}

int64_t CharSet::size() const {
  int64_t count = 0;
  for (const CharRange& range : ranges_) count += range.last - range.first + 1;
  return count;
}

CharSet CharSet::complement() const {
  CharSet rest;
  uint32_t next = 0;
  for (const CharRange& range : ranges_) {
    if (range.first > next) rest.add({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCharacter) rest.add({next, kLastCharacter});
  return rest;
}

CharSet CharSet::intersection(const CharSet& other) const {
  CharSet both;
  for (const CharRange& one : ranges_) {
    for (const CharRange& two : other.ranges_) {
      const CharRange range{std::max(one.first, two.first), std::min(one.last, two.last)};
      if (range.first <= range.last) both.add(range);
    }
  }
  return both;
}

}  // namespace slime::text
