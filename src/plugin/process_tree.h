#pragma once

/// A process with all that it started: what they hold, and their end.

#include <sys/types.h>
#include <cstdint>
#include <vector>

namespace slime::plugin {

struct TreeProcess {
  pid_t pid = 0;
  uint64_t started =
      0;  // in ticks since the system began: tells it from a later one of the same number
  uint64_t resident_bytes = 0;
};

/// `root`, which leads a session, what descends from it, and what else is in its session, as far as they
/// live. What left the session and lost its parents is in it where `root` is a subreaper. Reads the table of
/// all processes.
std::vector<TreeProcess> tree_of(pid_t root);

/// Resident memory of all of them; what they share counts once.
uint64_t memory_of(const std::vector<TreeProcess>& tree);

/// Kills those in the tree but `root`, until there are none, and `known` ones that have left it: a tree that
/// grows meanwhile is stopped first. Returns in any case after a second.
void kill_descendants(pid_t root, const std::vector<TreeProcess>& known);

}  // namespace slime::plugin
