#pragma once

/// Files of rows, whatever their form (row_form.h).

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "buffer/sliced_path.h"

namespace slime::buffer {

struct RowText {
  /// For people: the line of a JSON-lines file, the row of others from 0.
  int64_t number = 0;
  std::string json;
};

/// "a.jsonl, line 7" or "a.parquet, row 7".
std::string place_of(const std::filesystem::path& path, int64_t number);

/// Parses slices, finds the files of folders and patterns, and opens each once. Throws ConfigError with what is wrong with each of them:
/// no such file, another ending, no library for its form. `flag` is what named them.
std::vector<SlicedPath> open_paths(const std::vector<std::string>& texts, std::string_view flag);

/// Calls `on_row` with the rows of the slice, in order, until it returns false. Throws ConfigError
/// on a read error.
void read_rows(const SlicedPath& sliced, const std::function<bool(RowText row)>& on_row);

}  // namespace slime::buffer
