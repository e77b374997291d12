#include "sandbox/entry.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "core/word_pointers.h"
#include "sandbox/system_calls.h"
#include "sandbox/warm.h"

namespace slime::sandbox {
namespace {

constexpr uid_t kNobody = 65'534;
constexpr int kNiceness = 5;  // what trains and serves on this machine goes first

enum Step : int32_t {
  kNone,
  kGroup,
  kBecome,
  kNamespaces,
  kProcess,
  kDescriptors,
  kLimits,
  kFolder,
  kCapabilities,
  kFilter,
  kProgram,
  kWarm,
};

constexpr int kAllNamespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
                               CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

/// Everything that the copies of this process need, made before the first of them.
struct Plan {
  int jail = -1;
  int group = -1;  // entrance of a control group
  Person person;
  std::array<int, 3> standard{};  // the command's input, output, error
  int word = -1;                  // the doorkeeper's ends
  int leash = -1;
  std::vector<std::string> candidates;  // absolute paths of the program
  std::vector<char*> words;
  std::vector<char*> environment;
  const char* folder = nullptr;
  std::vector<ResourceLimit> limits;
  std::vector<sock_filter> filter;
};

/// What may follow is system calls: no allocation, no lock.
struct StepError {
  Step step = kNone;
  int error = 0;
};

void tell(int descriptor, const void* bytes, std::size_t count) {
  while (::write(descriptor, bytes, count) < 0 && errno == EINTR) {
  }
}

StepError put_limits(const Plan& plan) {
  for (const ResourceLimit& limit : plan.limits) {
    const rlimit both{limit.value, limit.value};
    if (::setrlimit(static_cast<__rlimit_resource_t>(limit.resource), &both) != 0)
      return {kLimits, errno};
  }
  ::setpriority(PRIO_PROCESS, 0, kNiceness);
  return {};
}

StepError drop_capabilities() {
  for (int capability = 0; capability < 64; ++capability) {
    if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 && errno != EINVAL)
      return {kCapabilities, errno};
  }
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  const __user_cap_data_struct none[2] = {};
  if (::syscall(SYS_capset, &header, none) != 0) return {kCapabilities, errno};
  return {};
}

StepError put_descriptors(const Plan& plan) {
  // The sources may be 0, 1 or 2 themselves: away from there first.
  std::array<int, 3> high{};
  for (std::size_t i = 0; i < high.size(); ++i) {
    high[i] = ::fcntl(plan.standard[i], F_DUPFD_CLOEXEC, 3);
    if (high[i] < 0) return {kDescriptors, errno};
  }
  for (std::size_t i = 0; i < high.size(); ++i) {
    if (::dup2(high[i], static_cast<int>(i)) < 0) return {kDescriptors, errno};
  }
  if (::syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) return {kDescriptors, errno};
  return {};
}

void reset_signals() {
  struct sigaction usual = {};
  usual.sa_handler = SIG_DFL;
  for (int signal = 1; signal < 65; ++signal) ::sigaction(signal, &usual, nullptr);
  const uint64_t none = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, sizeof none);
}

/// Returns only when it could not become the command.
StepError become_command(const Plan& plan) {
  ::syscall(SYS_setsid);
  if (const StepError failed = put_descriptors(plan); failed.step != kNone) return failed;
  if (::chdir(plan.folder) != 0) return {kFolder, errno};
  if (const StepError failed = put_limits(plan); failed.step != kNone) return failed;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return {kCapabilities, errno};
  if (const StepError failed = drop_capabilities(); failed.step != kNone) return failed;
  reset_signals();
  const sock_fprog filter{.len = static_cast<unsigned short>(plan.filter.size()),
                          .filter = const_cast<sock_filter*>(plan.filter.data())};
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0) return {kFilter, errno};
  int error = ENOENT;
  for (const std::string& path : plan.candidates) {
    ::execve(path.c_str(), plan.words.data(), plan.environment.data());
    if (errno != ENOENT) error = errno;
  }
  return {kProgram, error};
}

[[noreturn]] void be_doorkeeper(const Plan& plan) {
  // Its memory is a copy of this process's: nobody inside may read it.
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  DoorkeeperWord word;
  std::array<int, 2> failed{};  // the command's way to tell that there was no exec
  pid_t process = -1;
  const auto fail = [&](Step step, int error) {
    word.failed_step = step;
    word.error = error;
  };
  // While this process may still write there; what it starts belongs to the group as well.
  if (plan.group >= 0 && ::write(plan.group, "0", 1) != 1) {
    fail(kGroup, errno);
  } else if (const int error = become(plan.person); error != 0) {
    fail(kBecome, error);
  } else if (::setns(plan.jail, kAllNamespaces) != 0) {
    fail(kNamespaces, errno);
  } else if (::pipe2(failed.data(), O_CLOEXEC) != 0 || (process = clone_process()) < 0) {
    fail(kProcess, errno);
  } else if (process == 0) {
    const StepError error = become_command(plan);
    tell(failed[1], &error, sizeof error);
    ::_exit(127);
  } else {
    // Nothing of ours stays open here: who waits for the end of the command's output, or for this
    // program's to be gone, must not wait for a doorkeeper.
    const int high[] = {::fcntl(plan.word, F_DUPFD, 4), ::fcntl(failed[0], F_DUPFD, 4),
                        ::fcntl(plan.leash, F_DUPFD, 4),
                        static_cast<int>(::syscall(SYS_pidfd_open, process, 0))};
    for (int i = 0; i < 4; ++i) ::dup2(high[i], i);
    const int way = 0, errors = 1, leash = 2, command = 3;
    ::syscall(SYS_close_range, 4, ~0U, 0);
    pollfd events[] = {{.fd = leash, .events = POLLIN, .revents = 0},
                       {.fd = command, .events = POLLIN, .revents = 0}};
    while (::poll(events, 2, -1) < 0 && errno == EINTR) {
    }
    if (events[1].revents == 0) {
      // Not waited for yet, so the number is its own. The group may not be there yet.
      ::kill(-process, SIGKILL);
      ::kill(process, SIGKILL);
    }
    rusage used{};
    while (::wait4(process, &word.wait_status, 0, &used) < 0 && errno == EINTR) {
    }
    for (const timeval& time : {used.ru_utime, used.ru_stime})
      word.cpu_microseconds += int64_t{time.tv_sec} * 1'000'000 + time.tv_usec;
    StepError error;
    if (::read(errors, &error, sizeof error) == static_cast<ssize_t>(sizeof error))
      fail(error.step, error.error);
    tell(way, &word, sizeof word);
    ::_exit(0);
  }
  tell(plan.word, &word, sizeof word);
  ::_exit(0);
}

std::vector<std::string> candidates_of(const std::string& program) {
  if (program.find('/') != std::string::npos) return {program};
  std::vector<std::string> all;
  std::string_view rest = kSearchPath;
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    all.push_back(std::string(folder) + "/" + program);
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
  }
  return all;
}

std::vector<ResourceLimit> resource_limits(const Limits& limits, Device device) {
  const auto unsigned_of = [](int64_t value) { return static_cast<rlim_t>(value); };
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(limits.time).count();
  // What is mapped but not used is allowed (arenas, stacks, OpenMP), within reason.
  const int64_t address_room = int64_t{16} << 30;
  const rlim_t addresses =
      device == Device::kGpu ? RLIM_INFINITY : unsigned_of(limits.memory_bytes + address_room);
  return {
      {RLIMIT_CPU, unsigned_of(seconds + 1)},
      {RLIMIT_DATA, unsigned_of(limits.memory_bytes)},
      {RLIMIT_AS, addresses},
      {RLIMIT_NPROC, unsigned_of(limits.processes)},
      {RLIMIT_NOFILE, unsigned_of(limits.open_files)},
      {RLIMIT_FSIZE, unsigned_of(limits.disk_bytes)},
      // Not 0: with that a core still goes to a program that the system names, outside. 1 is none.
      {RLIMIT_CORE, 1},
      {RLIMIT_MEMLOCK, rlim_t{64} << 10},
      {RLIMIT_MSGQUEUE, 0},
      {RLIMIT_SIGPENDING, 1024},
      {RLIMIT_NICE, 0},
      {RLIMIT_RTPRIO, 0},
  };
}

Descriptor unblocked(Descriptor descriptor) {
  ::fcntl(descriptor.get(), F_SETFL, O_NONBLOCK);
  return descriptor;
}

}  // namespace

Person person_outside() {
  if (::geteuid() == 0) return {true, kNobody, kNobody};
  return {false, ::geteuid(), ::getegid()};
}

int become(const Person& person) {
  if (!person.is_switched) return 0;
  // Bare calls: the library's would wait for threads that this copy does not have.
  if (::syscall(SYS_setgroups, 0, nullptr) != 0) return errno;
  if (::syscall(SYS_setresgid, person.group, person.group, person.group) != 0) return errno;
  if (::syscall(SYS_setresuid, person.user, person.user, person.user) != 0) return errno;
  return 0;
}

pid_t clone_process() {
  return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

const char* name_of_step(int32_t step) {
  switch (step) {
    case kGroup:
      return "enter the control group";
    case kBecome:
      return "become the user nobody";
    case kNamespaces:
      return "enter the sandbox";
    case kProcess:
      return "start a process";
    case kDescriptors:
      return "hand over the descriptors";
    case kLimits:
      return "set the limits";
    case kFolder:
      return "enter the folder";
    case kCapabilities:
      return "give up all capabilities";
    case kFilter:
      return "set the system call filter";
    case kWarm:
      return "put a fork of the warm process into the sandbox";
    default:
      return "run the program";
  }
}

RunningCommand start_in(int jail, int group, const Person& person, const Command& command,
                        const Limits& limits, Device device) {
  const auto pipe = [] { return make_pipe("a pipe for a sandbox"); };
  Pipe word = pipe(), leash = pipe(), input = pipe(), output = pipe(), error = pipe();
  const Plan plan{.jail = jail,
                  .group = group,
                  .person = person,
                  .standard = {input.read.get(), output.write.get(), error.write.get()},
                  .word = word.write.get(),
                  .leash = leash.read.get(),
                  .candidates = candidates_of(command.words.at(0)),
                  .words = word_pointers(command.words),
                  .environment = word_pointers(command.environment),
                  .folder = command.folder.c_str(),
                  .limits = resource_limits(limits, device),
                  .filter = system_call_filter(device)};
  pid_t doorkeeper = -1;
  if (!command.warm.empty()) {
    ask_warm_process(command, {.word = plan.word,
                               .leash = plan.leash,
                               .standard = plan.standard,
                               .jail = jail,
                               .group = group,
                               .person = person,
                               .namespaces = kAllNamespaces,
                               .niceness = kNiceness,
                               .failed_step = kWarm,
                               .limits = plan.limits,
                               .filter = plan.filter});
  } else {
    doorkeeper = clone_process();
    if (doorkeeper == 0) be_doorkeeper(plan);
    if (doorkeeper < 0)
      throw std::system_error(errno, std::generic_category(), "a process for a sandbox");
  }
  return {.doorkeeper = doorkeeper,
          .word = unblocked(std::move(word.read)),
          .leash = unblocked(std::move(leash.write)),
          .input = unblocked(std::move(input.write)),
          .output = unblocked(std::move(output.read)),
          .error = unblocked(std::move(error.read))};
}

}  // namespace slime::sandbox
