#include "cli/models_below.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "cli/run_model.h"
#include "core/own_command.h"
#include "core/shell_word.h"
#include "model/adapter_files.h"

namespace slime::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 3;
constexpr std::size_t kMostShown = 8;

struct Found {
  std::vector<std::string> words;     // for a model
  std::vector<std::string> adapters;  // of no run that is there
};

/// Of a run with adapters a checkpoint holds those alone: "RUN@120", which knows the model.
std::string word_of_adapter(const fs::path& folder) {
  const fs::path run = folder.parent_path().parent_path();
  const int64_t step = step_of_checkpoint(folder);
  return step >= 0 && is_run_directory(run) ? fmt::format("{}@{}", run.string(), step) : "";
}

void find_models(const fs::path& folder, int depth, Found& found) {
  std::error_code none;
  if (is_run_directory(folder)) {
    if (fs::exists(folder / "latest", none)) found.words.push_back(folder.string());
    return;
  }
  if (model::has_adapter(folder)) {
    const std::string word = word_of_adapter(folder);
    (word.empty() ? found.adapters : found.words).push_back(word.empty() ? folder.string() : word);
    return;
  }
  if (fs::exists(folder / "config.json", none)) return found.words.push_back(folder.string());
  if (depth == 0) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (entry.is_directory(none) && !entry.is_symlink(none) &&
        !entry.path().filename().string().starts_with('.'))
      find_models(entry.path(), depth - 1, found);
  }
}

std::string shortened(std::vector<std::string> names) {
  std::ranges::sort(names);
  const std::size_t more = names.size() - std::min(names.size(), kMostShown);
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(", and {} more", more) : "");
}

}  // namespace

std::string models_below(const fs::path& folder) {
  // Names without "./" and a slash at the end, as they are typed.
  const fs::path given = folder.has_filename() ? folder : folder.parent_path();
  Found found;
  find_models(given, kDeepest, found);
  if (!found.words.empty()) return "open one of " + shortened(std::move(found.words));
  if (found.adapters.empty()) return "";
  const std::string first = *std::ranges::min_element(found.adapters);
  return fmt::format("below it are adapters: {}; {} opens one beside its model",
                     shortened(std::move(found.adapters)),
                     own_command("serve MODEL --adapter " + shell_word(first)));
}

std::string models_beside(const fs::path& path) {
  const fs::path given = path.has_filename() ? path : path.parent_path();
  const fs::path folder = given.has_parent_path() ? given.parent_path() : fs::path(".");
  std::vector<std::string> names;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (is_run_directory(entry.path()) || fs::exists(entry.path() / "config.json", none))
      names.push_back(entry.path().filename().string());
  }
  if (names.empty()) return "";
  return fmt::format("; {} has {}", folder == "." ? "this folder" : folder.string(),
                     shortened(std::move(names)));
}

}  // namespace slime::cli
