#pragma once

/// `data.jsonl@[a:b]`: a file and the rows of it that are wanted.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

namespace slime::buffer {

/// A slice has Python's meaning: negative positions count from the end, positions outside are cut.
/// Without a suffix both ends are open. Rows are non-blank lines, counted from 0.
struct SlicedPath {
  std::filesystem::path path;
  std::optional<int64_t> begin;
  std::optional<int64_t> end;

  /// True when the range is known only after counting the rows.
  bool counts_from_the_end() const { return begin.value_or(0) < 0 || end.value_or(0) < 0; }

  /// The half-open range of rows out of `num_rows`; begin == end when it is empty.
  std::pair<int64_t, int64_t> rows(int64_t num_rows) const;
};

/// A text that does not end in a well-formed slice is a path as a whole. Throws ConfigError when a
/// position does not fit 64 bits.
SlicedPath parse_sliced_path(std::string_view text);

}  // namespace slime::buffer
