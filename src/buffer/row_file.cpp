#include "buffer/row_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "buffer/arrow_rows.h"
#include "buffer/data_files.h"
#include "buffer/file_bytes.h"
#include "buffer/json_values.h"
#include "buffer/line_reader.h"
#include "buffer/row_form.h"
#include "core/error.h"
#include "core/json.h"

namespace slime::buffer {
namespace {

FileForm known_form(const std::filesystem::path& path) {
  const auto form = form_of(path);
  if (!form) throw ConfigError(fmt::format("{}: the name {}", path.string(), kKnownForms));
  return *form;
}

int64_t count_rows(const std::filesystem::path& path) {
  const FileForm form = known_form(path);
  if (const std::string name = form.arrow_name(); !name.empty())
    return count_arrow_rows(path, name);
  int64_t num_rows = 0;
  if (form.form == RowForm::kJson) {
    JsonValues values(path);
    while (values.next()) ++num_rows;
  } else {
    LineReader reader(path);
    while (reader.next()) ++num_rows;
  }
  return num_rows;
}

/// Whether a line ends inside of an object or a list: no whole value of JSON ends so.
bool goes_on(std::string_view line) {
  const std::size_t last = line.find_last_not_of(" \t\r");
  return last != std::string_view::npos &&
         std::string_view("{[,:").find(line[last]) != std::string_view::npos;
}

void require_rows_on_lines(const std::filesystem::path& path) {
  LineReader reader(path);
  const std::optional<std::string> line = reader.next();
  if (!line || !goes_on(*line)) return;
  const int64_t number = reader.line_number();
  const std::optional<std::string> next = reader.next();
  if (next && try_parse_json(*next)) return;  // one row is cut short, as will be said of it
  throw ConfigError(fmt::format(
      "{}: its JSON goes on behind line {}; each row stands on one line (jq -c {} writes "
      "such a file), or the name ends in .json",
      path.string(), number, line->find_first_not_of(" \t") == line->find('[') ? "'.[]'" : "."));
}

void open_once(const std::filesystem::path& path) {
  const FileForm form = known_form(path);
  const std::string name = form.arrow_name();
  {
    std::ifstream file(path);  // why a file cannot be opened comes before a missing library
    if (!file)
      throw ConfigError(
          fmt::format("{}: cannot be opened: {}", path.string(), std::strerror(errno)));
  }
  if (form.needs_arrow()) require_arrow_library();
  if (form.form == RowForm::kJsonLines)
    require_rows_on_lines(path);
  else if (name.empty())
    JsonValues(path).next();
  else
    read_arrow_rows(path, name, 0, 1, [](std::string_view) { return false; });
}

}  // namespace

std::string place_of(const std::filesystem::path& path, int64_t number) {
  return fmt::format("{}, {} {}", path.string(), known_form(path).unit(), number);
}

namespace {

/// A slice of several files is one of all their rows, end to end: each file gets its part of it.
void add_slices(const SlicedPath& whole, const std::vector<std::filesystem::path>& files,
                std::vector<SlicedPath>& paths) {
  if (!whole.begin && !whole.end) {
    for (const auto& file : files) paths.push_back({file, {}, {}});
    return;
  }
  constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> counts;
  int64_t total = 0;
  const int64_t wanted = whole.counts_from_the_end() ? kUnknown : whole.end.value_or(kUnknown);
  for (const auto& file : files) {
    if (total >= wanted) break;
    counts.push_back(count_rows(file));
    total += counts.back();
  }
  const auto [first, last] = whole.rows(total);
  int64_t begin = 0;  // of the file among all rows
  for (std::size_t i = 0; i < counts.size(); begin += counts[i], ++i) {
    const int64_t from = std::max<int64_t>(first - begin, 0);
    const int64_t to = std::min(last - begin, counts[i]);
    if (from < to) paths.push_back({files[i], from, to});
  }
}

}  // namespace

std::vector<SlicedPath> open_paths(const std::vector<std::string>& texts, std::string_view flag) {
  std::vector<SlicedPath> paths;
  std::vector<std::string> problems;
  for (const std::string& text : texts) {
    try {
      const SlicedPath whole = parse_sliced_path(text);
      const std::vector<std::filesystem::path> files = data_files(whole.path.string());
      for (const auto& file : files) open_once(file);
      if (files.size() == 1)
        paths.push_back({files.front(), whole.begin, whole.end});
      else
        add_slices(whole, files, paths);
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
  const FileForm form = known_form(sliced.path);
  if (const std::string name = form.arrow_name(); !name.empty()) {
    int64_t number = first;
    read_arrow_rows(sliced.path, name, first, last, [&](std::string_view json) {
      return on_row({number++, std::string(json)});
    });
    return;
  }
  if (form.form == RowForm::kJson) {
    JsonValues values(sliced.path);
    for (int64_t row = 0; row < last; ++row) {
      std::optional<std::string> value = values.next();
      if (!value) break;
      if (row >= first && !on_row({row, std::move(*value)})) break;
    }
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
