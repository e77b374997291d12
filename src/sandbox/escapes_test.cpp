/// Programs that try to get out of the sandbox, in tests/sandbox/escapes: each runs in one of its own,
/// and whether it got anywhere is seen from outside. A secret file, a listener on this machine's
/// loopback, another one without a file, and a process wait for them.
///
/// The first line of a program says how it must end, as the sandbox sees it: "ends: exited 0".

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "sandbox/for_tests.h"
#include "sandbox/sandbox.h"

namespace slime::sandbox {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

const std::filesystem::path kPrograms = "tests/sandbox/escapes";

std::string random_word() {
  std::random_device seed;
  return fmt::format("{:08x}{:08x}", seed(), seed());
}

/// Processes of this machine with `word` among their variables.
std::vector<std::string> processes_with(const std::string& word) {
  std::vector<std::string> all;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (text_of(entry.path() / "environ").find(word) != std::string::npos)
      all.push_back(name + ": " + text_of(entry.path() / "comm"));
  }
  return all;
}

/// Children of this process that nobody has waited for.
int children_left() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string children = text_of(task.path() / "children");
    count += static_cast<int>(std::count(children.begin(), children.end(), ' '));
  }
  return count;
}

/// What the programs are after.
class Baits {
 public:
  Baits() {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "secret") << secret_;
    std::filesystem::permissions(folder_ / "secret", std::filesystem::perms(0644));
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    nameless_ = listen_at(std::string(1, '\0') + name_);
    file_ = listen_at((folder_ / "socket").string());
    victim_ = ::fork();
    if (victim_ == 0) {
      ::execlp("sleep", "sleep", "3600", nullptr);
      ::_exit(127);
    }
  }
  ~Baits() {
    ::kill(victim_, SIGKILL);
    ::waitpid(victim_, nullptr, 0);
    for (const int each : {listener_, nameless_, file_}) ::close(each);
    std::filesystem::remove_all(folder_);
  }

  std::vector<std::string> arguments() const {
    return {(folder_ / "secret").string(), folder_.string(), std::to_string(port_), name_,
            std::to_string(victim_)};
  }
  const std::string& secret() const { return secret_; }
  void expect_untouched() const {
    for (const int each : {listener_, nameless_, file_}) {
      pollfd waiting{.fd = each, .events = POLLIN, .revents = 0};
      EXPECT_EQ(::poll(&waiting, 1, 0), 0) << "somebody connected";
    }
    EXPECT_EQ(::waitpid(victim_, nullptr, WNOHANG), 0) << "the process outside was killed";
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);
  }

 private:
  static int listen_at(const std::string& name) {
    const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof address.sun_path);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener, 8), 0);
    return listener;
  }

  std::string name_ = "slime_escape_" + random_word();
  std::string secret_ = random_word();
  std::filesystem::path folder_ = std::filesystem::path("/tmp") / name_;
  int listener_ = -1, nameless_ = -1, file_ = -1;
  int port_ = 0;
  pid_t victim_ = -1;
};

Limits small_limits(const std::string& ending) {
  Limits limits;
  // Where the end of the time is the ending; elsewhere it is there for a machine that is busy.
  limits.time = ending.starts_with("time") ? 1500ms : 60s;
  limits.memory_bytes = 256 << 20;
  limits.processes = 64;
  limits.output_bytes = 256 << 10;
  limits.disk_bytes = 32 << 20;
  limits.files = 2000;
  return limits;
}

/// Its name without what the language says, built where it has to be.
std::vector<std::string> words_for(Sandbox& sandbox, const std::filesystem::path& program) {
  const std::string file = "/work/" + program.filename().string();
  EXPECT_TRUE(sandbox.write(file, text_of(program)));
  if (program.extension() == ".py") {
    EXPECT_TRUE(sandbox.write("/work/escape.py", text_of("tests/sandbox/escape.py")));
    return {"python3", file};
  }
  if (program.extension() == ".sh") return {"sh", file};
  const Outcome built = sandbox.run({.words = {"g++", "-O1", "-o", "/work/program", file}});
  EXPECT_TRUE(built.is_success()) << built.reason << built.error;
  return {"/work/program"};
}

void expect_held(const std::filesystem::path& program) {
  SCOPED_TRACE(program.string());
  const std::string text = text_of(program);
  const std::size_t begin = text.find("ends: ");
  ASSERT_NE(begin, std::string::npos);
  const std::string ending = text.substr(begin + 6, text.find('\n') - begin - 6);
  const Baits baits;
  const std::string mark = random_word();
  const int children_before = children_left();
  {
    Sandbox sandbox({.limits = small_limits(ending)});
    Command command{.words = words_for(sandbox, program),
                    .environment = sandbox.usual_environment()};
    const std::vector<std::string> arguments = baits.arguments();
    command.words.insert(command.words.end(), arguments.begin(), arguments.end());
    command.environment.push_back("SLIME_ESCAPE_MARK=" + mark);
    const Outcome outcome = sandbox.run(command);
    EXPECT_EQ(fmt::format("{} {}", name_of(outcome.ending), outcome.code), ending)
        << outcome.reason << "\n"
        << outcome.output.substr(0, 500) << outcome.error.substr(0, 1500);
    EXPECT_THAT(outcome.output, HasSubstr("tried\n"));
    EXPECT_THAT(outcome.output, Not(HasSubstr("ESCAPED")));
    const auto answer = sandbox.read("/work/answer", 4096);
    for (const std::string& seen : {outcome.output, outcome.error, answer.value_or("")})
      EXPECT_EQ(seen.find(baits.secret()), std::string::npos) << "the secret is out";
    EXPECT_LE(outcome.output.size(), std::size_t{256} << 10);
  }
  EXPECT_THAT(processes_with(mark), testing::IsEmpty());
  EXPECT_EQ(children_left(), children_before);
  EXPECT_FALSE(std::filesystem::exists("/work/answer"));
  baits.expect_untouched();
}

/// Those whose names begin so. Each of them is one of the at least forty.
void expect_all_held(const std::string& kind, std::size_t at_least) {
  if (const auto& why = no_bubblewrap()) GTEST_SKIP() << *why;
  std::vector<std::filesystem::path> programs;
  for (const auto& entry : std::filesystem::directory_iterator(kPrograms)) {
    if (entry.path().filename().string().starts_with(kind)) programs.push_back(entry.path());
  }
  EXPECT_GE(programs.size(), at_least);
  std::sort(programs.begin(), programs.end());
  for (const auto& program : programs) expect_held(program);
}

TEST(SandboxEscapes, NoneReadsOrWritesTheMachinesFiles) { expect_all_held("files_", 11); }
TEST(SandboxEscapes, NoneMakesOrEntersNamespaces) { expect_all_held("namespaces_", 4); }
TEST(SandboxEscapes, NoneReachesAProcessOutsideOrStaysBehind) { expect_all_held("processes_", 13); }
TEST(SandboxEscapes, NoneUsesMoreThanItsLimits) { expect_all_held("limits_", 15); }
TEST(SandboxEscapes, NoneReachesANetwork) { expect_all_held("network_", 4); }
TEST(SandboxEscapes, NoneReachesWhatTheKernelHasBeside) { expect_all_held("kernel_", 7); }
TEST(SandboxEscapes, NoneForgesItsVerdict) { expect_all_held("verdict_", 5); }

}  // namespace
}  // namespace slime::sandbox
