#include "plugin/process_tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

extern char** environ;

namespace slime::plugin {
namespace {

using namespace std::chrono_literals;

/// A shell that leads a session of its own.
pid_t start(const char* script) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  const char* words[] = {"sh", "-c", script, nullptr};
  pid_t pid = -1;
  EXPECT_EQ(::posix_spawnp(&pid, "sh", nullptr, &attributes, const_cast<char**>(words), environ),
            0);
  posix_spawnattr_destroy(&attributes);
  return pid;
}

/// Waits until the tree has so many; its processes.
std::vector<TreeProcess> grown_to(pid_t root, std::size_t count) {
  const auto patience = std::chrono::steady_clock::now() + 20s;
  std::vector<TreeProcess> tree = tree_of(root);
  while (tree.size() != count && std::chrono::steady_clock::now() < patience) {
    std::this_thread::sleep_for(5ms);
    tree = tree_of(root);
  }
  return tree;
}

void end(pid_t root) {
  ::kill(root, SIGKILL);
  ::waitpid(root, nullptr, 0);
}

TEST(ProcessTree, HasWhatAProcessStartedAndWhatIsInItsSession) {
  // The second sleeper is in a session of its own, the third has lost its parent.
  const pid_t root = start("sleep 1000 & setsid sleep 1000 & (sleep 1000 &) ; wait");
  const std::vector<TreeProcess> tree = grown_to(root, 4);
  EXPECT_EQ(tree.size(), 4u);
  EXPECT_GT(memory_of(tree), uint64_t{100} << 10);
  EXPECT_LT(memory_of(tree), uint64_t{1} << 30);
  kill_descendants(root, {});
  EXPECT_EQ(grown_to(root, 1).size(), 1u);
  end(root);
  EXPECT_TRUE(tree_of(root).empty());
}

TEST(ProcessTree, OneThatLeftItIsKilledByWhatIsKnownOfIt) {
  const pid_t root = start("setsid sleep 1000 & wait");
  const std::vector<TreeProcess> known = grown_to(root, 2);
  ASSERT_EQ(known.size(), 2u);
  const pid_t sleeper = known[0].pid == root ? known[1].pid : known[0].pid;
  while (::getsid(sleeper) == root) std::this_thread::sleep_for(1ms);  // setsid is still to come
  end(root);
  EXPECT_EQ(tree_of(sleeper).size(), 1u) << "it lives on";
  kill_descendants(root, {{.pid = sleeper, .started = 1}});
  EXPECT_EQ(tree_of(sleeper).size(), 1u) << "another process of that number";
  kill_descendants(root, known);
  EXPECT_EQ(grown_to(sleeper, 0).size(), 0u);
}

TEST(ProcessTree, OneThatGrowsIsStoppedToo) {
  const pid_t root = start("while :; do sleep 1000 & sleep 0.001; done");
  EXPECT_GT(grown_to(root, 8).size(), 2u);
  kill_descendants(root, {});
  EXPECT_EQ(grown_to(root, 1).size(), 1u);
  end(root);
}

}  // namespace
}  // namespace slime::plugin
