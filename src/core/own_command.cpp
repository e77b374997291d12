#include "core/own_command.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>

#include "core/shell_word.h"

namespace slime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgramName = "slime";

bool is_same_file(const fs::path& one, const fs::path& other) {
  std::error_code error;
  return fs::equivalent(one, other, error) && !error;
}

/// What a shell would run for "slime".
std::optional<fs::path> found_by_search(std::string_view search) {
  while (!search.empty()) {
    const std::size_t end = search.find(':');
    const fs::path program = fs::path(search.substr(0, end)) / kProgramName;
    std::error_code error;
    if (fs::is_regular_file(program, error) && ::access(program.c_str(), X_OK) == 0) return program;
    search = end == std::string_view::npos ? std::string_view() : search.substr(end + 1);
  }
  return std::nullopt;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

StartedBy this_process() {
  StartedBy by{.told = variable("SLIME_COMMAND"), .search = variable("PATH")};
  std::ifstream words("/proc/self/cmdline", std::ios::binary);
  std::getline(words, by.typed, '\0');
  std::error_code none;
  by.exe = fs::read_symlink("/proc/self/exe", none);
  return by;
}

}  // namespace

std::string command_word(const StartedBy& by) {
  if (!by.told.empty()) return shell_word(by.told);
  if (by.exe.filename() != kProgramName) return kProgramName;
  const auto found = found_by_search(by.search);
  if (found && is_same_file(*found, by.exe)) return kProgramName;
  const bool is_path = by.typed.find('/') != std::string::npos;
  return shell_word(is_path && is_same_file(by.typed, by.exe) ? by.typed : by.exe.string());
}

std::string own_command(std::string_view rest) {
  static const std::string kWord = command_word(this_process());
  return kWord + " " + std::string(rest);
}

}  // namespace slime
