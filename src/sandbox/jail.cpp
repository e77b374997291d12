#include "sandbox/jail.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <system_error>

#include "core/error.h"
#include "core/word_pointers.h"
#include "sandbox/write_quietly.h"

namespace slime::sandbox {
namespace {

using Steady = std::chrono::steady_clock;

constexpr const char* kBubblewrap = "/usr/bin/bwrap";
constexpr std::chrono::milliseconds kEndPatience{30'000};
constexpr std::chrono::milliseconds kStartPatience{2'000};  // of a bwrap that has to give up
constexpr int kFirstHanded = 10;  // descriptors that bubblewrap is given have numbers from here
// In a name space of no power: what counts is that commands have none at all.
constexpr const char* kCapability = "CAP_LEASE";
// A first process that ignores the ends of its children leaves it to the kernel to bury orphans.
constexpr const char* kFirstProcess[] = {"/usr/bin/env", "--ignore-signal=CHLD", "cat"};
constexpr std::string_view kReady =
    "ready\n";  // goes in through the lifeline, and cat sends it back

constexpr const char* kUsers =
    "root:x:0:0:root:/:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/work:/bin/sh\n";
constexpr const char* kGroups = "root:x:0:\nnogroup:x:65534:\n";
constexpr const char* kHosts = "127.0.0.1 localhost sandbox\n::1 localhost\n";
constexpr const char* kNames = "passwd: files\ngroup: files\nhosts: files\n";

Descriptor memory_file(const char* text) {
  Descriptor file(::memfd_create("sandbox", MFD_CLOEXEC));
  if (file.get() < 0 || ::write(file.get(), text, std::strlen(text)) < 0 ||
      ::lseek(file.get(), 0, SEEK_SET) != 0)
    throw std::system_error(errno, std::generic_category(), "a file for a sandbox");
  return file;
}

/// The system's folders as they are on this machine: links as links.
void add_system(std::vector<std::string>& words) {
  words.insert(words.end(), {"--ro-bind", "/usr", "/usr"});
  for (const std::string name : {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}) {
    std::error_code none;
    if (std::filesystem::is_symlink(name, none)) {
      words.insert(words.end(), {"--symlink", std::filesystem::read_symlink(name).string(), name});
    } else if (std::filesystem::is_directory(name, none)) {
      words.insert(words.end(), {"--ro-bind", name, name});
    }
  }
  for (const std::string name : {"/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"})
    words.insert(words.end(), {"--ro-bind-try", name, name});
}

/// Its output until the end of a line or of the stream.
std::string read_line(int descriptor, Steady::time_point deadline) {
  std::string text;
  while (text.find('\n') == std::string::npos && text.size() < 4096) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Steady::now());
    pollfd waiting{.fd = descriptor, .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) == 0) break;
    std::array<char, 512> bytes{};
    const ssize_t count = ::read(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(bytes.data(), static_cast<std::size_t>(count));
  }
  return text;
}

/// The number behind "child-pid": in what bubblewrap writes about the jail; -1 when it is not there.
pid_t child_in(int about) {
  std::array<char, 1024> bytes{};
  const ssize_t count = ::pread(about, bytes.data(), bytes.size(), 0);
  std::string_view text(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  constexpr std::string_view kKey = "\"child-pid\":";
  const std::size_t at = text.find(kKey);
  if (at == std::string_view::npos) return -1;
  text.remove_prefix(at + kKey.size());
  while (text.starts_with(' ')) text.remove_prefix(1);
  pid_t child = -1;
  std::from_chars(text.data(), text.data() + text.size(), child);
  return child;
}

/// The parent of a process, from /proc; -1 when there is no such process.
pid_t parent_of(pid_t process) {
  const Descriptor file(
      ::open(fmt::format("/proc/{}/stat", process).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 512> text{};
  if (file.get() < 0 || ::read(file.get(), text.data(), text.size() - 1) <= 0) return -1;
  // "7 (name) S 1 ...": the name may have anything in it.
  const std::string_view line(text.data());
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string_view::npos || line.size() < name_end + 4) return -1;
  pid_t parent = -1;
  std::from_chars(line.data() + name_end + 4, line.data() + line.size(), parent);
  return parent;
}

bool is_readable_within(int descriptor, std::chrono::milliseconds patience) {
  pollfd waiting{.fd = descriptor, .events = POLLIN, .revents = 0};
  int found = 0;
  while ((found = ::poll(&waiting, 1, static_cast<int>(patience.count()))) < 0 && errno == EINTR) {
  }
  return found > 0;
}

/// The child first: it would wait for its parent.
void kill_with_child(pid_t bubblewrap) {
  const Descriptor file(
      ::open(fmt::format("/proc/{}/task/{}/children", bubblewrap, bubblewrap).c_str(),
             O_RDONLY | O_CLOEXEC));
  std::array<char, 256> text{};
  if (file.get() >= 0 && ::read(file.get(), text.data(), text.size() - 1) > 0) {
    pid_t child = -1;
    std::from_chars(text.data(), text.data() + text.size(), child);
    if (child > 0) ::kill(child, SIGKILL);
  }
  ::kill(bubblewrap, SIGKILL);
}

/// Waits for bwrap, whose lifeline is closed, and helps where it does not end by itself.
void bury(pid_t bubblewrap) {
  const Descriptor ended(static_cast<int>(::syscall(SYS_pidfd_open, bubblewrap, 0)));
  if (!is_readable_within(ended.get(), kStartPatience)) kill_with_child(bubblewrap);
  while (::waitpid(bubblewrap, nullptr, 0) < 0 && errno == EINTR) {
  }
}
}  // namespace

Jail::Jail(const Limits& limits, const std::vector<std::filesystem::path>& readable,
           const std::optional<GpuFiles>& gpu)
    : person_(person_outside()) {
  if (::access(kBubblewrap, X_OK) != 0) {
    throw ConfigError(
        "model-written code runs in bubblewrap only, and there is no /usr/bin/bwrap: install "
        "Debian's package bubblewrap (apt install bubblewrap)");
  }
  std::vector<Descriptor> files;
  std::vector<int> handed;
  const auto hand = [&](int descriptor) {
    handed.push_back(descriptor);
    return std::to_string(kFirstHanded + static_cast<int>(handed.size()) - 1);
  };
  std::vector<std::string> words{kBubblewrap,
                                 "--unshare-user",
                                 "--unshare-ipc",
                                 "--unshare-pid",
                                 "--unshare-net",
                                 "--unshare-uts",
                                 "--unshare-cgroup",
                                 "--disable-userns",
                                 "--uid",
                                 "65534",
                                 "--gid",
                                 "65534",
                                 "--hostname",
                                 "sandbox",
                                 "--clearenv",
                                 "--new-session",
                                 "--as-pid-1",
                                 "--cap-drop",
                                 "ALL",
                                 "--cap-add",
                                 kCapability};
  add_system(words);
  for (const auto& [name, text] : {std::pair{"/etc/passwd", kUsers},
                                   {"/etc/group", kGroups},
                                   {"/etc/hosts", kHosts},
                                   {"/etc/nsswitch.conf", kNames}}) {
    files.push_back(memory_file(text));
    words.insert(words.end(),
                 {"--perms", "0444", "--ro-bind-data", hand(files.back().get()), name});
  }
  words.insert(words.end(), {"--proc", "/proc"});
  for (const std::string name : {"null", "zero", "full", "random", "urandom"})
    words.insert(words.end(), {"--dev-bind", "/dev/" + name, "/dev/" + name});
  words.insert(words.end(), {"--size", std::to_string(limits.disk_bytes), "--perms", "0700",
                             "--tmpfs", "/work", "--dir", "/work/.tmp", "--dir", "/work/.shm"});
  // Relative ones, which bwrap can follow while it still builds: what is readable may lie in /tmp.
  for (const auto& [target, name] : {std::pair{"../proc/self/fd", "/dev/fd"},
                                     {"../proc/self/fd/0", "/dev/stdin"},
                                     {"../proc/self/fd/1", "/dev/stdout"},
                                     {"../proc/self/fd/2", "/dev/stderr"},
                                     {"../work/.shm", "/dev/shm"},
                                     {"work/.tmp", "/tmp"}})
    words.insert(words.end(), {"--symlink", target, name});
  for (const auto& path : readable)
    words.insert(words.end(), {"--ro-bind", path.string(), path.string()});
  if (gpu) {
    for (const auto& path : gpu->devices)
      words.insert(words.end(), {"--dev-bind", path.string(), path.string()});
    if (!gpu->libraries.string().starts_with("/usr/") &&
        !gpu->libraries.string().starts_with("/lib"))
      words.insert(words.end(), {"--ro-bind", gpu->libraries.string(), gpu->libraries.string()});
  }
  words.insert(words.end(), {"--remount-ro", "/", "--chdir", "/work"});
  start(words, handed, limits.start_time);
}

void Jail::start(const std::vector<std::string>& options, const std::vector<int>& files,
                 std::chrono::milliseconds patience) {
  const auto pipe = [] { return make_pipe("a pipe for a sandbox"); };
  Pipe lifeline = pipe(), ready = pipe(), errors = pipe();
  // A file, not a pipe: a pipe whose reader is killed would end bwrap before it lets its child go on,
  // and that child would wait for ever.
  const Descriptor about = memory_file("");
  std::vector<int> handed = files;
  handed.push_back(about.get());
  std::vector<std::string> words = options;
  words.insert(words.end(),
               {"--info-fd", std::to_string(kFirstHanded + static_cast<int>(files.size())), "--"});
  words.insert(words.end(), std::begin(kFirstProcess), std::end(kFirstProcess));
  const std::vector<char*> pointers = word_pointers(words);
  const std::array<int, 3> standard{lifeline.read.get(), ready.write.get(), errors.write.get()};
  // Numbers above all that dup2 writes to below.
  const int above = kFirstHanded + static_cast<int>(handed.size()) + 1;

  bubblewrap_ = clone_process();
  if (bubblewrap_ < 0) throw std::system_error(errno, std::generic_category(), "starting bwrap");
  if (bubblewrap_ == 0) {
    ::syscall(SYS_setsid);  // what is typed at a terminal ends this program alone, and it bwrap
    const auto move = [&](int from) { return ::fcntl(from, F_DUPFD_CLOEXEC, above); };
    std::array<int, 3> high{};
    for (std::size_t i = 0; i < 3; ++i) high[i] = move(standard[i]);
    for (int& each : handed) each = move(each);
    for (std::size_t i = 0; i < 3; ++i) ::dup2(high[i], static_cast<int>(i));
    ::syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
    for (std::size_t i = 0; i < handed.size(); ++i)
      ::dup2(handed[i], kFirstHanded + static_cast<int>(i));
    struct sigaction usual = {};
    usual.sa_handler = SIG_DFL;
    for (int signal = 1; signal < 65; ++signal) ::sigaction(signal, &usual, nullptr);
    const uint64_t none = 0;
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, sizeof none);
    char* const no_environment[] = {nullptr};
    if (become(person_) == 0) ::execve(kBubblewrap, pointers.data(), no_environment);
    ::_exit(126);
  }

  lifeline.read.reset();
  ready.write.reset();
  errors.write.reset();
  lifeline_ = std::move(lifeline.write);
  errors_ = std::move(errors.read);
  if (write_quietly(lifeline_.get(), kReady) < 0 ||
      read_line(ready.read.get(), Steady::now() + patience) != kReady)
    fail("did not get ready");
  const pid_t child = child_in(about.get());
  if (child > 0) first_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  // The number is still that process's: its parent, which is not waited for yet, is bwrap.
  if (first_.get() < 0 || parent_of(child) != bubblewrap_) {
    first_.reset();
    fail("made no process");
  }
  const auto folder = [&](const char* name) {
    return Descriptor(::open(fmt::format("/proc/{}/root/{}", child, name).c_str(),
                             O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  };
  processes_ = folder("proc");
  work_ = folder("work");
  if (processes_.get() < 0 || work_.get() < 0) fail("cannot be watched");
  sockets_ = std::make_unique<SocketListing>(first_.get(), person_);
}

void Jail::fail(const std::string& what) {
  close();
  std::string words = read_line(errors_.get(), Steady::now() + std::chrono::milliseconds(100));
  while (words.ends_with('\n')) words.pop_back();
  throw ConfigError(fmt::format(
      "model-written code runs in bubblewrap only, and bubblewrap {}{}. It needs user name spaces: "
      "in a container they may be forbidden from outside; elsewhere look at the settings "
      "kernel.unprivileged_userns_clone=1, user.max_user_namespaces and "
      "kernel.apparmor_restrict_unprivileged_userns=0",
      what, words.empty() ? "" : ": " + words));
}

Jail::~Jail() { close(); }

void Jail::kill() {
  if (first_.get() < 0) return;
  ::syscall(SYS_pidfd_send_signal, first_.get(), SIGKILL, nullptr, 0);
  // A first process is gone when all others of its space are: what is waited for here is that.
  is_readable_within(first_.get(), kEndPatience);
}

void Jail::close() {
  processes_.reset();
  work_.reset();
  lifeline_.reset();
  kill();
  bury(bubblewrap_);
}

}  // namespace slime::sandbox
