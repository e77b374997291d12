#include "sandbox/proc_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <memory>

namespace slime::sandbox {

std::vector<std::string> numbered_in(int folder, const std::string& name) {
  std::vector<std::string> all;
  const int copy = ::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return all;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(copy), &::closedir);
  if (entries == nullptr) {
    ::close(copy);
    return all;
  }
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view found = entry->d_name;
    if (found.find_first_not_of("0123456789") == std::string_view::npos) all.emplace_back(found);
  }
  return all;
}

std::string read_file(int folder, const std::string& name, std::size_t limit_bytes) {
  std::string text;
  const int file = ::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  std::array<char, 16'384> bytes{};
  ssize_t count = 0;
  while (text.size() < limit_bytes && (count = ::read(file, bytes.data(), bytes.size())) > 0)
    text.append(bytes.data(), static_cast<std::size_t>(count));
  ::close(file);
  return text;
}

int64_t number_at(std::string_view text, std::size_t at, int base) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  int64_t number = 0;
  if (at < text.size()) std::from_chars(text.data() + at, text.data() + text.size(), number, base);
  return number;
}

int64_t number_behind(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  return at == std::string_view::npos ? 0 : number_at(text, at + name.size());
}

}  // namespace slime::sandbox
