#include "sandbox/kernel_memory.h"

#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <span>
#include <string_view>

#include "sandbox/proc_files.h"

namespace slime::sandbox {
namespace {

// What one of each can make the kernel hold. Programs cannot enlarge the buffers of sockets and pipes
// (sandbox/system_calls.cpp).
constexpr int64_t kOfLocalSocket = int64_t{512} << 10;
constexpr int64_t kOfInetSocket = int64_t{64} << 20;
constexpr int64_t kOfPipe = int64_t{64} << 10;
constexpr int64_t kOfOpenFile = 1024;  // its own records, a socket's among them
constexpr int64_t kOfLock = 256;
/// Listing them takes time that grows with the square of their number, and no honest program has so many.
constexpr int64_t kMostLocks = 16'384;
constexpr int64_t kOfWatchedFile = 192;  // in an epoll instance
constexpr int64_t kOfMapping = 256;
constexpr int64_t kMostMappings = 65'530;  // of a process, vm.max_map_count
constexpr int64_t kOfThread = int64_t{32} << 10;

/// Buffers of local sockets have this size; of one whose writer is gone nobody counts what waits.
int64_t local_buffer() {
  static const int64_t bytes = [] {
    const int folder = ::open("/proc/sys/net/core", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int64_t found = number_at(read_file(folder, "wmem_default"), 0);
    ::close(folder);
    return found > 0 ? found : kOfLocalSocket;
  }();
  return bytes;
}

/// What locks on files weigh; more than `limit_bytes` where there are too many to be counted.
int64_t of_locks(int processes_folder, int64_t limit_bytes) {
  const Descriptor file(::openat(processes_folder, "locks", O_RDONLY | O_CLOEXEC));
  std::array<char, 16'384> bytes{};
  int64_t locks = 0;
  ssize_t count = 0;
  while (locks <= kMostLocks && (count = ::read(file.get(), bytes.data(), bytes.size())) > 0)
    locks += std::count(bytes.begin(), bytes.begin() + count, '\n');
  return locks > kMostLocks ? limit_bytes + 1 : locks * kOfLock;
}

/// A question for a listing, and what its answers weigh.
template <typename Request>
struct Question {
  nlmsghdr head;
  Request request;
};

template <typename Request>
Question<Request> question(const Request& request) {
  Question<Request> all{};
  all.head.nlmsg_len = sizeof all;
  all.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  all.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  all.request = request;
  return all;
}

/// The attribute of this type among those of an answer; empty: it has none.
std::string_view attribute(std::string_view attributes, uint16_t type) {
  while (attributes.size() >= sizeof(nlattr)) {
    nlattr head;
    std::memcpy(&head, attributes.data(), sizeof head);
    if (head.nla_len < sizeof head || head.nla_len > attributes.size()) break;
    if (head.nla_type == type) return attributes.substr(sizeof head, head.nla_len - sizeof head);
    attributes.remove_prefix(std::min<std::size_t>(attributes.size(), NLA_ALIGN(head.nla_len)));
  }
  return {};
}

uint32_t word_at(std::string_view bytes, std::size_t index) {
  uint32_t word = 0;
  if (bytes.size() >= (index + 1) * sizeof word)
    std::memcpy(&word, bytes.data() + index * sizeof word, sizeof word);
  return word;
}

int64_t weight_of_local(std::string_view answer) {
  if (answer.size() < sizeof(unix_diag_msg)) return 0;
  const std::string_view attributes = answer.substr(sizeof(unix_diag_msg));
  const std::string_view memory = attribute(attributes, UNIX_DIAG_MEMINFO);
  int64_t bytes = word_at(memory, SK_MEMINFO_WMEM_ALLOC);
  bytes += word_at(memory, SK_MEMINFO_RMEM_ALLOC);
  const bool has_waiting = word_at(attribute(attributes, UNIX_DIAG_RQLEN), 0) > 0;
  const bool has_peer = word_at(attribute(attributes, UNIX_DIAG_PEER), 0) != 0;  // a closed one: 0
  return bytes + (has_waiting && !has_peer ? local_buffer() : 0);
}

int64_t weight_of_inet(std::string_view answer) {
  if (answer.size() < sizeof(inet_diag_msg)) return 0;
  const std::string_view memory =
      attribute(answer.substr(sizeof(inet_diag_msg)), INET_DIAG_SKMEMINFO);
  int64_t bytes = 0;
  for (const int part : {SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_WMEM_QUEUED, SK_MEMINFO_FWD_ALLOC,
                         SK_MEMINFO_BACKLOG, SK_MEMINFO_WMEM_ALLOC})
    bytes += word_at(memory, static_cast<std::size_t>(part));
  return bytes;
}

/// All answers' weights; nothing where the kernel has no such listing.
template <typename Request>
std::optional<int64_t> sum_of(int netlink, const Request& request,
                              int64_t (*weight)(std::string_view)) {
  Question<Request> asked = question(request);
  if (::send(netlink, &asked, sizeof asked, 0) != static_cast<ssize_t>(sizeof asked))
    return std::nullopt;
  alignas(nlmsghdr) std::array<char, 32'768> bytes{};
  int64_t sum = 0;
  for (;;) {
    const ssize_t count = ::recv(netlink, bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    std::string_view rest(bytes.data(), static_cast<std::size_t>(count));
    while (rest.size() >= sizeof(nlmsghdr)) {
      nlmsghdr head;
      std::memcpy(&head, rest.data(), sizeof head);
      if (head.nlmsg_type == NLMSG_DONE) return sum;
      if (head.nlmsg_type == NLMSG_ERROR) return std::nullopt;
      if (head.nlmsg_len < sizeof head || head.nlmsg_len > rest.size()) return std::nullopt;
      sum += weight(rest.substr(sizeof head, head.nlmsg_len - sizeof head));
      rest.remove_prefix(std::min<std::size_t>(rest.size(), NLMSG_ALIGN(head.nlmsg_len)));
    }
  }
}

/// Pipes that processes hold, each once, and what their epoll instances remember.
int64_t of_open_files(int processes_folder, const std::vector<std::string>& processes) {
  std::set<std::string> pipes;
  int64_t bytes = 0;
  for (const std::string& process : processes) {
    const std::string folder = process + "/fd";
    int64_t num_files = 0, num_epolls = 0;
    for (const std::string& file : numbered_in(processes_folder, folder)) {
      std::array<char, 64> target{};
      const ssize_t count = ::readlinkat(processes_folder, (folder + "/" + file).c_str(),
                                         target.data(), target.size());
      const std::string_view name(target.data(),
                                  static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
      ++num_files;
      if (name.starts_with("pipe:")) pipes.emplace(name);
      if (name.find("[eventpoll]") != name.npos) ++num_epolls;
    }
    bytes += num_files * kOfOpenFile + num_epolls * num_files * kOfWatchedFile;
  }
  return bytes + static_cast<int64_t>(pipes.size()) * kOfPipe;
}

}  // namespace

/// By a copy of this process that enters the jail's network, for a moment.
void SocketListing::open() {
  is_open_ = true;
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return;
  const Descriptor own(ends[0]);
  Descriptor its(ends[1]);
  char byte = 0;
  iovec part{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  const pid_t visitor = clone_process();
  if (visitor == 0) {
    const bool is_inside =
        become(person_) == 0 && ::setns(jail_, CLONE_NEWUSER | CLONE_NEWNET) == 0;
    const int netlink =
        is_inside ? static_cast<int>(::syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC,
                                               NETLINK_SOCK_DIAG))
                  : -1;
    if (netlink >= 0) {
      cmsghdr* head = CMSG_FIRSTHDR(&message);
      head->cmsg_level = SOL_SOCKET;
      head->cmsg_type = SCM_RIGHTS;
      head->cmsg_len = CMSG_LEN(sizeof netlink);
      std::memcpy(CMSG_DATA(head), &netlink, sizeof netlink);
      ::syscall(SYS_sendmsg, its.get(), &message, MSG_NOSIGNAL);
    }
    ::_exit(0);
  }
  its.reset();
  if (visitor < 0) return;
  ssize_t count = 0;
  while ((count = ::recvmsg(own.get(), &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  const cmsghdr* head = count == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (head != nullptr && head->cmsg_type == SCM_RIGHTS) {
    int netlink = -1;
    std::memcpy(&netlink, CMSG_DATA(head), sizeof netlink);
    netlink_ = Descriptor(netlink);
    const timeval patience{.tv_sec = 5, .tv_usec = 0};
    ::setsockopt(netlink, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  while (::waitpid(visitor, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<int64_t> SocketListing::bytes(int64_t limit_bytes) {
  const std::lock_guard lock(mutex_);
  if (!is_open_) open();
  if (netlink_.get() < 0) return std::nullopt;
  unix_diag_req local{};
  local.sdiag_family = AF_UNIX;
  local.udiag_states = ~0U;
  local.udiag_show = UDIAG_SHOW_MEMINFO | UDIAG_SHOW_RQLEN | UDIAG_SHOW_PEER;
  std::optional<int64_t> sum = sum_of(netlink_.get(), local, &weight_of_local);
  for (const uint8_t family : {AF_INET, AF_INET6}) {
    for (const uint8_t protocol : {IPPROTO_TCP, IPPROTO_UDP}) {
      if (!sum || *sum > limit_bytes) break;
      inet_diag_req_v2 inet{};
      inet.sdiag_family = family;
      inet.sdiag_protocol = protocol;
      inet.idiag_ext = 1 << (INET_DIAG_SKMEMINFO - 1);
      inet.idiag_states = ~0U;
      const auto more = sum_of(netlink_.get(), inet, &weight_of_inet);
      sum = more ? std::optional(*sum + *more) : std::nullopt;
    }
  }
  if (!sum) netlink_.reset();  // what is left of an answer would be read as the next one
  return sum;
}

int64_t most_kernel_memory(int processes_folder, const std::vector<std::string>& processes,
                           int64_t mapped_bytes, int64_t limit_bytes) {
  const std::string sockets = read_file(processes_folder, "1/net/sockstat");
  int64_t num_files = 0;
  for (const std::string& process : processes)
    num_files += static_cast<int64_t>(numbered_in(processes_folder, process + "/fd").size());
  const int64_t num_inet = number_behind(sockets, "TCP: inuse ") +
                           number_behind(sockets, " orphan ") +
                           number_behind(sockets, "UDP: inuse ");
  const auto num_processes = static_cast<int64_t>(processes.size());
  const int64_t num_mappings = std::min(mapped_bytes / 4096, num_processes * kMostMappings);
  return number_behind(sockets, "sockets: used ") * kOfLocalSocket + num_inet * kOfInetSocket +
         num_files * (kOfPipe + kOfOpenFile) + of_locks(processes_folder, limit_bytes) +
         mapped_bytes / 512 + num_mappings * kOfMapping + num_processes * (int64_t{64} << 10);
}

int64_t kernel_memory(int processes_folder, const std::vector<std::string>& processes,
                      SocketListing& sockets, int64_t limit_bytes) {
  int64_t bytes = 0;
  if (const auto listed = sockets.bytes(limit_bytes)) {
    bytes = *listed;
  } else {
    const std::string counts = read_file(processes_folder, "1/net/sockstat");
    const int64_t num_tcp =
        number_behind(counts, "TCP: inuse ") + number_behind(counts, " orphan ");
    bytes =
        number_behind(counts, "sockets: used ") * local_buffer() + num_tcp * (kOfInetSocket / 16);
  }
  if (bytes > limit_bytes) return bytes;
  for (const std::string& process : processes) {
    const std::string status = read_file(processes_folder, process + "/status");
    const std::string maps = read_file(processes_folder, process + "/maps");
    bytes += number_behind(status, "VmPTE:") * 1024 +
             number_behind(status, "Threads:") * kOfThread +
             std::count(maps.begin(), maps.end(), '\n') * kOfMapping;
    if (bytes > limit_bytes) return bytes;
  }
  bytes += of_locks(processes_folder, limit_bytes);
  if (bytes > limit_bytes) return bytes;
  return bytes + of_open_files(processes_folder, processes);
}

}  // namespace slime::sandbox
