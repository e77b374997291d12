#include "buffer/row_file.h"

#include <fmt/format.h>

#include <fstream>
#include <limits>

#include "buffer/line_reader.h"
#include "buffer/parquet_file.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

bool is_parquet(const std::filesystem::path& path) { return path.extension() == ".parquet"; }

int64_t count_rows(const std::filesystem::path& path) {
  if (is_parquet(path)) return count_parquet_rows(path);
  LineReader reader(path);
  int64_t num_rows = 0;
  while (reader.next()) ++num_rows;
  return num_rows;
}

void open_once(const std::filesystem::path& path) {
  if (is_parquet(path)) {
    const LineReader reader(path);  // says why a file cannot be opened
    require_parquet_library();
    count_parquet_rows(path);
  } else if (path.extension() == ".jsonl") {
    const LineReader reader(path);
  } else {
    throw ConfigError(fmt::format("{}: the name should end in .jsonl or .parquet", path.string()));
  }
}

}  // namespace

std::string place_of(const std::filesystem::path& path, int64_t number) {
  return fmt::format("{}, {} {}", path.string(), is_parquet(path) ? "row" : "line", number);
}

std::vector<SlicedPath> open_paths(const std::vector<std::string>& texts, std::string_view flag) {
  std::vector<SlicedPath> paths;
  std::vector<std::string> problems;
  for (const std::string& text : texts) {
    try {
      paths.push_back(parse_sliced_path(text));
      open_once(paths.back().path);
    } catch (const ConfigError& error) {
      problems.push_back(fmt::format("{} {}", flag, error.what()));
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
  return paths;
}

void read_rows(const SlicedPath& sliced, const std::function<bool(RowText row)>& on_row) {
  constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
  const auto [first, last] =
      sliced.rows(sliced.counts_from_the_end() ? count_rows(sliced.path) : kUnknown);
  if (is_parquet(sliced.path)) {
    int64_t number = first;
    read_parquet_rows(sliced.path, first, last, [&](std::string_view json) {
      return on_row({number++, std::string(json)});
    });
    return;
  }
  LineReader reader(sliced.path);
  for (int64_t row = 0; row < last; ++row) {
    std::optional<std::string> line = reader.next();
    if (!line) break;
    if (row >= first && !on_row({reader.line_number(), std::move(*line)})) break;
  }
}

}  // namespace slime::buffer
