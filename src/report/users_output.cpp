#include "report/users_output.h"

#include <fmt/format.h>

#include <system_error>
#include <vector>

namespace slime::report {

namespace fs = std::filesystem;

std::optional<std::string> UsersOutput::line() {
  if (was_told_) return std::nullopt;
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(logs_, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code unknown;
    if (name.starts_with("trainer-") && name.ends_with(".log") && entry->file_size(unknown) > 0)
      files.push_back(entry->path());
  }
  if (files.empty()) return std::nullopt;
  was_told_ = true;
  const fs::path named = files.size() > 1 ? logs_ / "trainer-*.log" : files.front();
  return fmt::format("what users' functions next to the trainer print is in {}", named.string());
}

}  // namespace slime::report
