#include "text/unicode/python_text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <unordered_set>

namespace slime::text::python {
namespace {

struct CaseRun {
  uint32_t first, last, step;
  int32_t delta;
};
struct CaseSpecial {
  uint32_t point;
  const char* text;
};
struct PointRange {
  uint32_t first, last;
};

#include <python_text_tables.inc>  // made of tables.txt by the build

bool contains(std::span<const PointRange> ranges, char32_t point) {
  const auto range =
      std::lower_bound(ranges.begin(), ranges.end(), point,
                       [](const PointRange& range, char32_t value) { return range.last < value; });
  return range != ranges.end() && range->first <= point;
}

const CaseRun* find_run(std::span<const CaseRun> runs, char32_t point) {
  // Runs are sorted by their first point and those of step 2 may interleave, so look at a few
  // before the bound.
  auto run = std::upper_bound(
      runs.begin(), runs.end(), point,
      [](char32_t value, const CaseRun& candidate) { return value < candidate.first; });
  for (int looked = 0; looked < 3 && run != runs.begin(); ++looked) {
    --run;
    if (point <= run->last && (point - run->first) % run->step == 0) return &*run;
  }
  return nullptr;
}

struct CaseTable {
  std::span<const CaseRun> runs;
  std::span<const CaseSpecial> special;
};

const CaseTable kUpper{kToUpper, kToUpperSpecial};
const CaseTable kLower{kToLower, kToLowerSpecial};
const CaseTable kTitle{kToTitle, kToTitleSpecial};

bool changes(const CaseTable& table, char32_t point) {
  if (find_run(table.runs, point) != nullptr) return true;
  return std::any_of(table.special.begin(), table.special.end(),
                     [&](const CaseSpecial& row) { return row.point == point; });
}

void append_converted(char32_t point, const CaseTable& table, std::string& out) {
  if (const CaseRun* run = find_run(table.runs, point)) {
    append_point(static_cast<char32_t>(static_cast<int32_t>(point) + run->delta), out);
    return;
  }
  for (const CaseSpecial& row : table.special) {
    if (row.point == point) {
      out += row.text;
      return;
    }
  }
  append_point(point, out);
}

void append_upper(char32_t point, std::string& out) {
  if (point < 0x80) {
    out += static_cast<char>(point >= 'a' && point <= 'z' ? point - 32 : point);
  } else {
    append_converted(point, kUpper, out);
  }
}

void append_lower(char32_t point, std::string& out) {
  if (point < 0x80) {
    out += static_cast<char>(point >= 'A' && point <= 'Z' ? point + 32 : point);
  } else {
    append_converted(point, kLower, out);
  }
}

void append_title(char32_t point, std::string& out) {
  if (point < 0x80) return append_upper(point, out);
  append_converted(point, kTitle, out);
}

/// The characters that are taken off; white space where none are given.
class StrippedSet {
 public:
  explicit StrippedSet(const std::optional<std::string>& characters)
      : is_space_(!characters.has_value()) {
    for (std::size_t at = 0; characters && at < characters->size();)
      points_.insert(next_point(*characters, at));
  }
  bool has(char32_t point) const { return is_space_ ? is_space(point) : points_.contains(point); }

 private:
  bool is_space_;
  std::unordered_set<char32_t> points_;
};

std::size_t previous_point_start(std::string_view text, std::size_t end) {
  std::size_t start = end - 1;
  while (start > 0 && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80)
    --start;
  std::size_t at = start;
  next_point(text, at);
  return at == end ? start : end - 1;
}

}  // namespace

char32_t next_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const int length = lead < 0x80                   ? 1
                     : lead >= 0xf0 && lead < 0xf8 ? 4
                     : lead >= 0xe0                ? 3
                     : lead >= 0xc0                ? 2
                                                   : 1;
  if (length == 1 || lead >= 0xf8 || at + static_cast<std::size_t>(length) > text.size()) {
    ++at;
    return lead;
  }
  char32_t point = lead & (0x7f >> length);
  for (int i = 1; i < length; ++i) {
    const unsigned char next = byte(at + static_cast<std::size_t>(i));
    if ((next & 0xc0) != 0x80) {
      ++at;
      return lead;
    }
    point = (point << 6) | (next & 0x3f);
  }
  at += static_cast<std::size_t>(length);
  return point;
}

std::size_t point_bytes(std::string_view text, std::size_t at) {
  const std::size_t begin = at;
  next_point(text, at);
  return at - begin;
}

bool is_word_point(char32_t point) {
  return point == '_' || is_alphabetic(point) || is_numeric(point);
}

void append_point(char32_t point, std::string& out) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xc0 | (point >> 6));
    put(0x80 | (point & 0x3f));
  } else if (point < 0x10000) {
    put(0xe0 | (point >> 12));
    put(0x80 | ((point >> 6) & 0x3f));
    put(0x80 | (point & 0x3f));
  } else {
    put(0xf0 | (point >> 18));
    put(0x80 | ((point >> 12) & 0x3f));
    put(0x80 | ((point >> 6) & 0x3f));
    put(0x80 | (point & 0x3f));
  }
}

std::size_t count_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) next_point(text, at);
  return count;
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) next_point(text, at);
  return at;
}

std::vector<std::string_view> split_points(std::string_view text) {
  std::vector<std::string_view> points;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    next_point(text, at);
    points.push_back(text.substr(start, at - start));
  }
  return points;
}

bool is_space(char32_t point) {
  if (point < 0x80)
    return point == ' ' || (point >= 0x09 && point <= 0x0d) || (point >= 0x1c && point <= 0x1f);
  return point == 0x85 || point == 0xa0 || point == 0x1680 ||
         (point >= 0x2000 && point <= 0x200a) || point == 0x2028 || point == 0x2029 ||
         point == 0x202f || point == 0x205f || point == 0x3000;
}

bool is_printable(char32_t point) {
  if (point < 0x80) return point >= 0x20 && point < 0x7f;
  return !contains(kNotPrintable, point);
}

bool is_alphabetic(char32_t point) {
  if (point < 0x80) return (point >= 'a' && point <= 'z') || (point >= 'A' && point <= 'Z');
  return contains(kAlphabetic, point);
}

bool is_numeric(char32_t point) {
  if (point < 0x80) return point >= '0' && point <= '9';
  return contains(kNumeric, point);
}

bool is_upper(char32_t point) {
  if (point < 0x80) return point >= 'A' && point <= 'Z';
  return changes(kLower, point);
}

bool is_lower(char32_t point) {
  if (point < 0x80) return point >= 'a' && point <= 'z';
  return changes(kUpper, point);
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) append_upper(next_point(text, at), out);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) append_lower(next_point(text, at), out);
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool inside_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t point = next_point(text, at);
    if (inside_word) {
      append_lower(point, out);
    } else {
      append_title(point, out);
    }
    inside_word = is_upper(point) || is_lower(point);
  }
  return out;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  std::size_t at = 0;
  std::string out;
  append_title(next_point(text, at), out);
  return out + to_lower(text.substr(at));
}

std::string with_swapped_case(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t point = next_point(text, at);
    if (is_upper(point)) {
      append_lower(point, out);
    } else {
      append_upper(point, out);
    }
  }
  return out;
}

std::string_view stripped_left(std::string_view text,
                               const std::optional<std::string>& characters) {
  const StrippedSet set(characters);
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t next = at;
    if (!set.has(next_point(text, next))) break;
    at = next;
  }
  return text.substr(at);
}

std::string_view stripped_right(std::string_view text,
                                const std::optional<std::string>& characters) {
  const StrippedSet set(characters);
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t start = previous_point_start(text, end);
    std::size_t at = start;
    if (!set.has(next_point(text, at))) break;
    end = start;
  }
  return text.substr(0, end);
}

std::string_view stripped(std::string_view text, const std::optional<std::string>& characters) {
  return stripped_right(stripped_left(text, characters), characters);
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t point = next_point(text, at);
    const bool breaks = (point >= 0x0a && point <= 0x0d) || (point >= 0x1c && point <= 0x1e) ||
                        point == 0x85 || point == 0x2028 || point == 0x2029;
    if (!breaks) continue;
    if (point == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::vector<std::string_view> split(std::string_view text,
                                    const std::optional<std::string>& separator, int64_t limit) {
  std::vector<std::string_view> parts;
  if (separator) {
    while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
      const std::size_t found = find_part(text, *separator);
      if (found == std::string_view::npos) break;
      parts.push_back(text.substr(0, found));
      text.remove_prefix(found + separator->size());
    }
    parts.push_back(text);
    return parts;
  }
  text = stripped_left(text);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    std::size_t at = 0;
    while (at < text.size()) {
      std::size_t next = at;
      if (is_space(next_point(text, next))) break;
      at = next;
    }
    parts.push_back(text.substr(0, at));
    text = stripped_left(text.substr(at));
  }
  return parts;
}

std::vector<std::string_view> split_from_right(std::string_view text,
                                               const std::optional<std::string>& separator,
                                               int64_t limit) {
  if (limit < 0) return split(text, separator, limit);
  std::vector<std::string_view> parts;
  if (separator) {
    const std::string backwards(text.rbegin(), text.rend());
    std::size_t end = text.size();
    for (const std::string_view part :
         split(backwards, std::string(separator->rbegin(), separator->rend()), limit)) {
      parts.push_back(text.substr(end - part.size(), part.size()));
      end -= std::min(end, part.size() + separator->size());
    }
  } else {
    text = stripped_right(text);
    while (!text.empty()) {
      if (static_cast<int64_t>(parts.size()) == limit) {
        parts.push_back(text);
        break;
      }
      std::size_t start = text.size();
      while (start > 0) {
        const std::size_t previous = previous_point_start(text, start);
        std::size_t at = previous;
        if (is_space(next_point(text, at))) break;
        start = previous;
      }
      parts.push_back(text.substr(start));
      text = stripped_right(text.substr(0, start));
    }
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::size_t find_part(std::string_view text, std::string_view part) {
  if (part.empty()) return 0;
  if (text.empty()) return std::string_view::npos;
  const void* found = ::memmem(text.data(), text.size(), part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t find_last_part(std::string_view text, std::string_view part) {
  if (part.empty()) return text.size();
  // Of the search from the right, a short part is compared at each place; a long one is sought in
  // reversed texts.
  constexpr std::size_t kShort = 8;
  if (part.size() <= kShort) return text.rfind(part);
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_part(part.rbegin(), part.rend());
  const std::size_t found = find_part(reversed_text, reversed_part);
  return found == std::string_view::npos ? found : text.size() - found - part.size();
}

std::size_t count_occurrences(std::string_view text, std::string_view part) {
  if (part.empty()) return count_points(text) + 1;
  std::size_t count = 0;
  for (std::size_t at = find_part(text, part); at != std::string_view::npos;
       at = find_part(text, part)) {
    text.remove_prefix(at + part.size());
    ++count;
  }
  return count;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     int64_t limit) {
  std::string out;
  int64_t done = 0;
  if (from.empty()) {
    for (const std::string_view point : split_points(text)) {
      if (limit < 0 || done < limit) out += to;
      ++done;
      out += point;
    }
    if (limit < 0 || done < limit) out += to;
    return out;
  }
  while (limit < 0 || done < limit) {
    const std::size_t found = find_part(text, from);
    if (found == std::string_view::npos) break;
    out += text.substr(0, found);
    out += to;
    text.remove_prefix(found + from.size());
    ++done;
  }
  return out += text;
}

}  // namespace slime::text::python
