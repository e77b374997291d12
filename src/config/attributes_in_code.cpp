#include "config/attributes_in_code.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "config/users_functions.h"

namespace slime::config {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kLargestFile = std::uintmax_t{4} << 20;

/// Where "file.py", "file.py:name" or "package.module.name" may be.
std::vector<fs::path> files_of(const std::string& path) {
  const std::string file =
      path.substr(0, path.find(".py:") == std::string::npos ? path.size() : path.find(".py:") + 3);
  if (file.ends_with(".py")) return {file};
  std::vector<fs::path> files;
  std::string module = path;
  std::ranges::replace(module, '.', '/');
  for (;;) {
    files.emplace_back(module + ".py");
    files.push_back(fs::path(module) / "__init__.py");
    const std::size_t slash = module.rfind('/');
    if (slash == std::string::npos) return files;
    module.resize(slash);
  }
}

bool is_part_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_part_of_name(text[at - 1])) &&
        (end == text.size() || !is_part_of_name(text[end])))
      return true;
  }
  return false;
}

}  // namespace

bool is_in_users_code(const RunConfig& config, std::string_view attribute) {
  std::set<std::string> paths;
  for (const UsersFunction& each : users_functions(config)) paths.insert(each.path);
  for (const std::string& path : generate_paths(config)) paths.insert(path);
  for (const std::string& path : paths) {
    for (const fs::path& file : files_of(path)) {
      std::error_code absent;
      if (!fs::is_regular_file(file, absent) || fs::file_size(file, absent) > kLargestFile)
        continue;
      std::ifstream in(file, std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      if (has_word(text, attribute)) return true;
    }
  }
  return false;
}

}  // namespace slime::config
