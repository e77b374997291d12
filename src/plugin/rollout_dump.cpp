#include "plugin/rollout_dump.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "plugin/host_process.h"

namespace slime::plugin {
namespace {

constexpr std::size_t kMostWords = 4096;  // of what Python says

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

std::string read_to_end(int descriptor) {
  std::string text;
  std::array<char, 1024> buffer{};
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    if (text.size() < kMostWords) text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

bool is_torch_file(const std::filesystem::path& path) {
  std::array<char, 4> head{};
  std::ifstream file(path, std::ios::binary);
  return file.read(head.data(), head.size()) && std::memcmp(head.data(), "PK\x03\x04", 4) == 0;
}

ReadableDump::ReadableDump(const std::filesystem::path& path) : path_(path) {
  if (!is_torch_file(path)) return;
  folder_.emplace("slime-dump");
  path_ = folder_->path() / "samples.jsonl";
  convert_rollout_dump(path, path_);
}

void convert_rollout_dump(const std::filesystem::path& from, const std::filesystem::path& to) {
  const char* own = std::getenv("SLIME_PYTHON");
  std::vector<std::string> words{own == nullptr ? "python3" : own, "-m",
                                 "slime.checkpoints.rollout_dump", from.string(), to.string()};
  std::vector<std::string> environment = python_environment();
  std::array<int, 2> errors{-1, -1};
  if (::pipe2(errors.data(), O_CLOEXEC) != 0)
    throw ConfigError(
        fmt::format("{}: no pipe for Python: {}", from.string(), std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, errors[1], STDERR_FILENO);
  pid_t child = -1;
  const int failed = ::posix_spawnp(&child, words[0].c_str(), &actions, nullptr,
                                    pointers(words).data(), pointers(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(errors[1]);
  const std::string said = failed == 0 ? read_to_end(errors[0]) : "";
  ::close(errors[0]);
  if (failed != 0) {
    throw ConfigError(fmt::format("{}: {} is needed to convert it, and could not be started: {}",
                                  from.string(), words[0], std::strerror(failed)));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  throw ConfigError(fmt::format("{}: {}", from.string(),
                                said.empty() ? "its conversion ended without a word" : said));
}

}  // namespace slime::plugin
