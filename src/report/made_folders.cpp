#include "report/made_folders.h"

#include <algorithm>

namespace slime::report {
namespace {

namespace fs = std::filesystem;

/// What a start leaves that was refused. A log that says something is kept.
bool is_leftover(const fs::directory_entry& entry) {
  std::error_code error;
  if (entry.is_symlink(error)) return false;
  if (entry.is_directory(error)) return true;  // what is in it is looked at as well
  if (entry.path().filename() == "lock") return true;
  return entry.path().extension() == ".log" && entry.file_size(error) == 0 && !error;
}

bool has_leftovers_alone(const fs::path& folder) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (!is_leftover(*entry)) return false;
  return !error;
}

}  // namespace

void MadeFolders::make(const fs::path& folder, std::error_code& error) {
  std::vector<fs::path> missing;
  std::error_code unknown;
  for (fs::path each = folder; !each.empty() && !fs::exists(each, unknown) && !unknown;
       each = each.parent_path())
    missing.push_back(each);
  fs::create_directories(folder, error);
  if (error || missing.empty()) return;
  folders_.push_back(missing.front());
  parents_.insert(parents_.end(), missing.rbegin(), missing.rend() - 1);
}

MadeFolders::~MadeFolders() {
  std::error_code error;
  if (fs::exists(proof_, error) || error) return;
  for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder)
    if (has_leftovers_alone(*folder)) fs::remove_all(*folder, error);
  for (auto parent = parents_.rbegin(); parent != parents_.rend(); ++parent)
    fs::remove(*parent, error);  // refused where it is not empty
}

}  // namespace slime::report
