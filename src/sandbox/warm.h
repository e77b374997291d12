#pragma once

/// Commands that are forks of a process which has loaded what they need: PyTorch takes seconds to import,
/// a fork of a process that has it takes milliseconds.
///
///   this process --request--> warm process --fork--> doorkeeper --fork--> the command
///                                                     enters the jail      inside
///
/// A warm process (python/slime/agent/warm_process.py) is trusted code outside of all sandboxes that listens
/// at a Unix socket. What entry.h does to a copy of this process, it does to a copy of its own: the same
/// name spaces, user, control group, limits, filter of system calls and no capability, and all numbers of
/// these come with the request. The doorkeeper tells the same word through the same pipe.

#include <sys/resource.h>

#include <linux/filter.h>
#include <array>
#include <vector>

#include "sandbox/entry.h"

namespace slime::sandbox {

struct ResourceLimit {
  int resource;
  rlim_t value;
};

/// Descriptors, identity and limits of a fork: everything in the request but the command.
struct WarmEntry {
  int word = -1;  // the doorkeeper's end of RunningCommand::word
  int leash = -1;
  std::array<int, 3> standard{};  // the command's input, output, error
  int jail = -1;                  // pidfd of its first process
  int group = -1;                 // entrance of a control group, -1: none
  Person person;
  int namespaces = 0;  // flags of setns(2)
  int niceness = 0;
  int32_t failed_step = 0;  // what DoorkeeperWord::failed_step is where a fork failed
  std::vector<ResourceLimit> limits;
  std::vector<sock_filter> filter;
};

/// Sends the request, with the descriptors. Throws ConfigError where nobody of this user listens at
/// command.warm.
void ask_warm_process(const Command& command, const WarmEntry& entry);

}  // namespace slime::sandbox
