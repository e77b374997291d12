#include "buffer/data_files.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "buffer/row_form.h"
#include "buffer/sliced_path.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostDataFiles = 100'000;
constexpr int kDeepestFolder = 16;

/// What describes a data set beside its files is no file of rows.
bool is_rows(const fs::path& path) {
  constexpr auto kDescriptions = std::to_array<std::string_view>(
      {"dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json"});
  const std::string name = path.filename().string();
  return form_of(path) && std::ranges::find(kDescriptions, name) == kDescriptions.end();
}

bool is_pattern(const std::string& path) {
  return path.find_first_of("*?[{\\") != std::string::npos;
}

/// The hub's cache and others keep hidden folders beside the data.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    const bool is_hidden = entry->path().filename().string().starts_with('.');
    if (is_hidden || entry.depth() > kDeepestFolder) entry.disable_recursion_pending();
    std::error_code missing;
    if (!is_hidden && entry->is_regular_file(missing) && is_rows(entry->path()))
      files.push_back(entry->path());
    if (files.size() > kMostDataFiles)
      throw ConfigError(fmt::format("{}: has more than {} files", folder.string(), kMostDataFiles));
  }
  if (error) throw ConfigError(fmt::format("{}: {}", folder.string(), error.message()));
  std::ranges::sort(files);
  return files;
}

std::vector<fs::path> files_matching(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_BRACE, nullptr, &found);
  std::vector<fs::path> files;
  for (std::size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
    std::error_code error;
    if (fs::is_regular_file(found.gl_pathv[i], error)) files.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  std::ranges::sort(files);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace

bool has_data_files(const std::string& text) {
  const fs::path path = parse_sliced_path(text).path;
  std::error_code error;
  return fs::exists(path, error) ||
         (is_pattern(path.string()) && !files_matching(path.string()).empty());
}

std::vector<fs::path> data_files(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    std::vector<fs::path> files = files_below(path);
    if (files.empty())
      throw ConfigError(fmt::format("{}: is a directory without files of rows", path));
    return files;
  }
  if (fs::exists(path, error) || !is_pattern(path)) return {path};
  std::vector<fs::path> files = files_matching(path);
  if (files.empty()) throw ConfigError(fmt::format("{}: matches no file", path));
  return files;
}

}  // namespace slime::buffer
