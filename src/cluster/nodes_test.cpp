#include "cluster/nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "cluster/node.h"
#include "cluster/run_identity.h"
#include "cluster/workers.h"
#include "core/error.h"
#include "net/tcp.h"

namespace slime::cluster {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr std::chrono::seconds kLong{20};
const SystemClock kClock;
const std::string kToken(64, 'a');

NodesConfig config() {
  return {
      .address = "127.0.0.1", .token = kToken, .program = "p", .return_limit = milliseconds(50)};
}

/// A node in a process of its own, which ends with the controller.
class Host {
 public:
  Host(int port, int rank, const std::string& token = kToken, const std::string& program = "p") {
    process_ = ::fork();
    if (process_ != 0) return;
    int code = 99;
    try {
      code = run_node({.address = "127.0.0.1",
                       .port = port,
                       .token = token,
                       .program = program,
                       .rank = rank,
                       .num_devices = 4,
                       .connect_limit = milliseconds(200)});
    } catch (const ConfigError&) {
      code = 2;
    } catch (const std::exception&) {
      code = 1;
    }
    ::_exit(code);
  }
  ~Host() {
    if (process_ > 0) kill();
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  void kill() {
    ::kill(process_, SIGKILL);
    wait();
  }
  int wait() {
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t process_ = -1;
};

struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("slime_nodes_" + std::to_string(::getpid()));
  ~Folder() { std::filesystem::remove_all(path); }
};

WorkersConfig scripts(const Folder& folder, const std::string& script) {
  return {.first_rank = 1,
          .count = 1,
          .command = {"/bin/sh", "-c", script},
          .places = {{.node = 1}},
          .log_folder = folder.path,
          .silence_limit = kLong};
}

TEST(Nodes, AWorkerOfAnotherHostHasItsConnectionsAndIsHeard) {
  const Folder folder;
  Nodes nodes(config(), kClock);
  Host host(nodes.port(), 1);
  std::vector<std::string> told;
  nodes.gather(2, kLong, [&](const std::string& line) { told.push_back(line); });
  EXPECT_EQ(nodes.num_nodes(), 2);
  EXPECT_EQ(nodes.fewest_devices(), 4);
  EXPECT_EQ(nodes.address(1), "127.0.0.1");
  // An answer of 2 bytes, and a word over the other connection.
  WorkersConfig workers = scripts(
      folder,
      R"(printf 'SLMF\003\000\000\000\002\000\000\000\000\000\000\000ok' >&3; echo data >&4; exec sleep 100)");
  workers.has_data = true;
  workers.stop_limit = milliseconds(50);
  {
    Workers started(workers, nodes, kClock);
    EXPECT_EQ(started.answer(1, kLong), "ok");
    const int data = started.take_data(1);
    ::pollfd readable{.fd = data, .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&readable, 1, static_cast<int>(milliseconds(kLong).count())), 1);
    char word[5] = {};
    EXPECT_EQ(::read(data, word, sizeof word), 5);
    ::close(data);
  }
  nodes.end(0);
}

TEST(Nodes, HowAWorkerEndedAndItsLastLinesComeWithTheNews) {
  const Folder folder;
  Nodes nodes(config(), kClock);
  Host host(nodes.port(), 1);
  nodes.gather(2, kLong, [](const std::string&) {});
  Workers started(scripts(folder, "echo one; echo two; exit 7"), nodes, kClock);
  try {
    started.answer(1, kLong);
    ADD_FAILURE() << "it has ended";
  } catch (const WorkerFailure& error) {
    EXPECT_THAT(error.what(), HasSubstr("ended with exit code 7"));
    EXPECT_THAT(error.what(), HasSubstr("  one\n  two"));
  }
}

TEST(Nodes, AProgramThatIsNotThereIsAConfigurationError) {
  const Folder folder;
  Nodes nodes(config(), kClock);
  Host host(nodes.port(), 1);
  nodes.gather(2, kLong, [](const std::string&) {});
  WorkersConfig workers = scripts(folder, "");
  workers.command = {"/nonexistent/slime"};
  EXPECT_THROW(Workers(workers, nodes, kClock), ConfigError);
}

TEST(Nodes, AHostThatIsLostTakesItsWorkersAndMayBeReplaced) {
  const Folder folder;
  NodesConfig patient = config();
  patient.return_limit = kLong;
  Nodes nodes(patient, kClock);
  Host host(nodes.port(), 1);
  nodes.gather(2, kLong, [](const std::string&) {});
  {
    Workers started(scripts(folder, "exec sleep 100"), nodes, kClock);
    host.kill();
    try {
      started.answer(1, kLong);
      ADD_FAILURE() << "it is lost";
    } catch (const WorkerFailure& error) {
      EXPECT_THAT(error.what(), HasSubstr("is lost with its host"));
    }
  }
  const Host again(nodes.port(), 1);
  const Workers started(scripts(folder, "exec sleep 100"), nodes, kClock);
  EXPECT_EQ(started.count(), 1);
}

TEST(Nodes, WithoutAReplacementTheWorkerIsTheFailure) {
  const Folder folder;
  Nodes nodes(config(), kClock);
  Host host(nodes.port(), 1);
  nodes.gather(2, kLong, [](const std::string&) {});
  host.kill();
  const auto start = [&] {
    while (true) Workers(scripts(folder, "exec sleep 100"), nodes, kClock).answer(1, kLong);
  };
  EXPECT_THROW(start(), WorkerFailure);
}

TEST(Nodes, HostsOfAnotherTokenOrProgramAreRefused) {
  Nodes nodes(config(), kClock);
  EXPECT_EQ(Host(nodes.port(), 1, std::string(64, 'b')).wait(), 2);
  EXPECT_EQ(Host(nodes.port(), 1, kToken, "q").wait(), 2);
  EXPECT_THROW(nodes.gather(2, milliseconds(1), [](const std::string&) {}), ConfigError);
}

TEST(Nodes, HostsEndWithTheRunsExitCode) {
  std::optional<Nodes> nodes(std::in_place, config(), kClock);
  Host one(nodes->port(), 3), two(nodes->port(), 1);
  nodes->gather(3, kLong, [](const std::string&) {});
  nodes->end(5);
  nodes.reset();
  EXPECT_EQ(one.wait(), 5);
  EXPECT_EQ(two.wait(), 5);
}

TEST(Nodes, StrangersThatSendAnythingElseAreClosed) {
  Nodes nodes(config(), kClock);
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
                                   std::string("SLMF\x65\0\0\0\xff\xff\xff\xff\0\0\0\0", 16)}) {
    const int socket = net::connect_to("127.0.0.1", nodes.port(), milliseconds(1000));
    ASSERT_EQ(::write(socket, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    char byte = 0;
    EXPECT_LE(::read(socket, &byte, 1), 0);
    ::close(socket);
  }
}

}  // namespace
}  // namespace slime::cluster
