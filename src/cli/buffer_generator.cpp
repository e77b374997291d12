#include "cli/buffer_generator.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "core/error.h"
#include "core/log_rotation.h"
#include "core/replace_file.h"
#include "core/word_pointers.h"
#include "plugin/host_process.h"

namespace slime::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kListPatience = 60s;  // Python and the imports of the files
constexpr auto kEndPatience = 2s;
constexpr std::string_view kModule = "slime.rollout.buffer_generators";

std::string words_of_end(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

/// The status once it has ended; nothing when that takes longer.
std::optional<int> wait_for(pid_t process, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (int status = 0;;) {
    if (::waitpid(process, &status, WNOHANG) != 0) return status;
    if (std::chrono::steady_clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(10ms);
  }
}

}  // namespace

BufferGenerator::BufferGenerator(GeneratorConfig config) : config_(std::move(config)) {
  if (config_.files.empty()) return;
  const std::filesystem::path list = config_.folder / "generators.json";
  const std::filesystem::path log = config_.folder / "generator.log";
  std::vector<std::string> words{"list", list.string()};
  words.insert(words.end(), config_.files.begin(), config_.files.end());
  const pid_t process = spawn(words, log);
  const std::optional<int> status = wait_for(process, kListPatience);
  if (!status) ::kill(-process, SIGKILL);
  if (!status || *status != 0) {
    throw ConfigError(fmt::format("--generator: {} {}; {} says why", config_.python,
                                  status ? words_of_end(*status) : "takes longer than a minute",
                                  log.string()));
  }
  const json::value listed = read_json_file(list);
  if (!listed.is_object())
    throw ConfigError(fmt::format("{}: should be an object of tasks", list.string()));
  tasks_ = listed.get_object();
}

BufferGenerator::~BufferGenerator() {
  const std::lock_guard lock(mutex_);
  end();
}

pid_t BufferGenerator::spawn(const std::vector<std::string>& words,
                             const std::filesystem::path& output) {
  std::vector<std::string> command{config_.python, "-m", std::string(kModule)};
  command.insert(command.end(), words.begin(), words.end());
  std::vector<std::string> environment = plugin::python_environment();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  pid_t process = -1;
  const int error =
      ::posix_spawnp(&process, config_.python.c_str(), &actions, &attributes,
                     word_pointers(command).data(), word_pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw ConfigError(fmt::format("--plugin-python {}: cannot be started: {}", config_.python,
                                  std::strerror(error)));
  }
  return process;
}

void BufferGenerator::start(const json::object& payload) {
  const std::lock_guard lock(mutex_);
  end();
  const std::filesystem::path file = config_.folder / "generator.json";
  replace_file(file, json_text(payload));
  std::vector<std::string> words{"run", file.string()};
  words.insert(words.end(), config_.files.begin(), config_.files.end());
  process_ = spawn(words, config_.folder / "generator.log");
  state_ = "running";
}

std::string BufferGenerator::look() {
  rotate_log_of_others(config_.folder / "generator.log");
  int status = 0;
  if (process_ > 0 && ::waitpid(process_, &status, WNOHANG) == process_) {
    ::kill(-process_, SIGKILL);  // what it left behind
    process_ = -1;
    state_ = words_of_end(status);
  }
  return state_;
}

std::string BufferGenerator::state() {
  const std::lock_guard lock(mutex_);
  return look();
}

void BufferGenerator::end() {
  look();
  if (process_ <= 0) return;
  ::kill(-process_, SIGTERM);
  if (!wait_for(process_, kEndPatience)) {
    ::kill(-process_, SIGKILL);
    int status = 0;
    ::waitpid(process_, &status, 0);
  }
  ::kill(-process_, SIGKILL);
  process_ = -1;
  state_ = "none";
}

}  // namespace slime::cli
