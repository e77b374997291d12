#include "cli/sibling.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "cli/options.h"

namespace slime::cli {

namespace fs = std::filesystem;
namespace {

fs::path own_path() {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none);
}

}  // namespace

std::string sibling_path(const std::string& name) {
  return (own_path().parent_path() / name).string();
}

void become_sibling(const std::string& name, std::span<const std::string> arguments) {
  const std::string path = sibling_path(name);
  if (asks_for_manual(arguments)) return;  // of a command of this program, which goes on
  if (own_path().filename() != "slime" || ::access(path.c_str(), X_OK) != 0) return;
  std::vector<char*> words{const_cast<char*>(path.c_str())};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execv(path.c_str(), words.data());
}

}  // namespace slime::cli
