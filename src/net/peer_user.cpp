#include "net/peer_user.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace slime::net {
namespace {

/// Both ends of a connection, the peer's first.
struct Ends {
  int family = 0;
  std::array<uint32_t, 4> peer{}, own{};  // addresses, in the order of the network
  uint16_t peer_port = 0, own_port = 0;   // idem
};

std::optional<Ends> ends_of(int socket) {
  Ends ends;
  const auto read = [&](auto ask, std::array<uint32_t, 4>& address, uint16_t& port) {
    sockaddr_storage storage{};
    socklen_t length = sizeof storage;
    if (ask(socket, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return false;
    ends.family = storage.ss_family;
    if (storage.ss_family == AF_INET) {
      sockaddr_in in{};
      std::memcpy(&in, &storage, sizeof in);
      address[0] = in.sin_addr.s_addr;
      port = in.sin_port;
      return true;
    }
    sockaddr_in6 in{};
    std::memcpy(&in, &storage, sizeof in);
    std::memcpy(address.data(), &in.sin6_addr, sizeof in.sin6_addr);
    port = in.sin6_port;
    return storage.ss_family == AF_INET6;
  };
  if (!read(::getpeername, ends.peer, ends.peer_port) ||
      !read(::getsockname, ends.own, ends.own_port))
    return std::nullopt;
  return ends;
}

/// Of the socket that has these ends the other way round, asked for by sock_diag(7). `is_answered`: false
/// where the kernel has no such listing.
std::optional<uid_t> ask_kernel(const Ends& ends, bool& is_answered) {
  is_answered = false;
  const int netlink = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (netlink < 0) return std::nullopt;
  struct {
    nlmsghdr head{};
    inet_diag_req_v2 request{};
  } asked;
  asked.head.nlmsg_len = sizeof asked;
  asked.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  asked.head.nlmsg_flags = NLM_F_REQUEST;
  asked.request.sdiag_family = static_cast<uint8_t>(ends.family);
  asked.request.sdiag_protocol = IPPROTO_TCP;
  asked.request.idiag_states = ~0U;
  asked.request.id.idiag_sport = ends.peer_port;
  asked.request.id.idiag_dport = ends.own_port;
  std::memcpy(asked.request.id.idiag_src, ends.peer.data(), sizeof ends.peer);
  std::memcpy(asked.request.id.idiag_dst, ends.own.data(), sizeof ends.own);
  asked.request.id.idiag_cookie[0] = asked.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  alignas(nlmsghdr) std::array<char, 4096> bytes{};
  ssize_t count = -1;
  if (::send(netlink, &asked, sizeof asked, 0) == static_cast<ssize_t>(sizeof asked))
    count = ::recv(netlink, bytes.data(), bytes.size(), 0);
  ::close(netlink);
  nlmsghdr head{};
  if (count < static_cast<ssize_t>(sizeof head)) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  inet_diag_msg told{};
  if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      count < static_cast<ssize_t>(sizeof head + sizeof told))
    return std::nullopt;
  std::memcpy(&told, bytes.data() + sizeof head, sizeof told);
  is_answered = true;
  // A closed one that still has something to send belongs to nobody, which reads as root.
  if (told.idiag_inode == 0) return std::nullopt;
  return told.idiag_uid;
}

/// The same from /proc/net/tcp.
std::optional<uid_t> look_it_up(const Ends& ends) {
  const auto name = [&](const std::array<uint32_t, 4>& address, uint16_t port) {
    std::string text;
    const int words = ends.family == AF_INET ? 1 : 4;
    for (int i = 0; i < words; ++i)
      text += fmt::format("{:08X}", address[static_cast<std::size_t>(i)]);
    return text + fmt::format(":{:04X}", ntohs(port));
  };
  const std::string peer = name(ends.peer, ends.peer_port), own = name(ends.own, ends.own_port);
  std::ifstream file(ends.family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string number, local, remote, state, queues, timer, retransmits;
    uid_t user = 0;
    int64_t timeout = 0, inode = 0;
    fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
        timeout >> inode;
    if (fields && local == peer && remote == own)
      return inode == 0 ? std::nullopt : std::optional(user);
  }
  return std::nullopt;
}

}  // namespace

std::optional<uid_t> user_of_peer(int socket) {
  const std::optional<Ends> ends = ends_of(socket);
  if (!ends) return std::nullopt;
  bool is_answered = false;
  const std::optional<uid_t> user = ask_kernel(*ends, is_answered);
  return is_answered ? user : look_it_up(*ends);
}

bool is_own_user(std::optional<uid_t> user) { return user && (*user == ::geteuid() || *user == 0); }

}  // namespace slime::net
