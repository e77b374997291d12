#pragma once

/// One command put into the name spaces of a jail, and its exit status read outside of them.
///
///   this process -- doorkeeper (outside of the jail's process space) -- the command (inside)
///
/// The doorkeeper is a copy of this process without an exec. It enters the jail's name spaces, starts
/// the command there and waits for it; what the kernel tells it goes through a pipe that nothing
/// inside has. Code inside sees neither the doorkeeper nor the pipe, so there is nothing to forge.
/// Before the command's exec: limits, no capability, no new privileges, the system call filter.
///
/// The copy costs page tables: do this in a process whose memory is small, not beside a model.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/descriptor.h"
#include "sandbox/limits.h"

namespace slime::sandbox {

/// Who the sandbox's processes are outside: nobody where this process is root (the kernel does not
/// count root's processes), otherwise this process's user.
struct Person {
  bool is_switched = false;
  uid_t user = 0;
  gid_t group = 0;
};
Person person_outside();
/// In a process made by raw clone: system calls alone. 0 or errno.
int become(const Person& person);

/// A copy of this process, by the bare system call: nothing but system calls may follow in it until
/// its exec or _exit. Its id, 0 in the copy, -1 with errno.
pid_t clone_process();

struct Command {
  std::vector<std::string> words;        // the program is searched in kSearchPath; at least one
  std::vector<std::string> environment;  // "NAME=value", all of it
  std::string folder = "/work";
  std::string input;  // its standard input, whole
  /// The socket of a warm process (sandbox/warm.h), whose fork the command is; empty: a program of its own.
  std::filesystem::path warm = {};
};

/// Whether a command finds a GPU: its driver maps far more addresses than memory, so these are not
/// limited then, and binds memory to places (sandbox/system_calls.h).
enum class Device { kNone, kGpu };

inline constexpr const char* kSearchPath = "/usr/local/bin:/usr/bin:/bin";

/// What the doorkeeper tells once, or nothing when it was killed.
struct DoorkeeperWord {
  int32_t failed_step = 0;  // 0: the command ran; else what could not be done, and its errno
  int32_t error = 0;
  int32_t wait_status = 0;  // as wait(2) has it
  int64_t cpu_microseconds = 0;
};
/// "enter the name spaces", for a step that failed.
const char* name_of_step(int32_t step);

struct RunningCommand {
  pid_t doorkeeper = -1;  // -1: a warm process's child, and not this one's
  // Our ends; none of them blocks.
  Descriptor word;   // readable: a DoorkeeperWord, then the end
  Descriptor leash;  // closed: the doorkeeper kills the command and its process group
  Descriptor input;
  Descriptor output;
  Descriptor error;
};

/// `jail` is a pidfd of its first process; `group` the entrance of a control group
/// (sandbox/memory_group.h), -1: none. Throws std::system_error when there are no descriptors or
/// processes for it, ConfigError when no warm process answers.
RunningCommand start_in(int jail, int group, const Person& person, const Command& command,
                        const Limits& limits, Device device);

}  // namespace slime::sandbox
