#include "sandbox/warm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace slime::sandbox {
namespace {

constexpr timeval kPatience{.tv_sec = 30,
                            .tv_usec = 0};  // of a warm process that is busy with forks

[[noreturn]] void refuse(const Command& command, const std::string& why) {
  throw ConfigError(fmt::format("warm process {}: {}", command.warm.string(), why));
}

Descriptor connection_to(const Command& command) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = command.warm.string();
  if (path.size() >= sizeof address.sun_path)
    refuse(command, fmt::format("a socket's path has less than {} bytes", sizeof address.sun_path));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    refuse(command, fmt::format("does not answer ({})", std::strerror(errno)));
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.uid != ::geteuid())
    refuse(command, "belongs to another user");
  return socket;
}

std::string request_text(const Command& command, const WarmEntry& entry) {
  boost::json::array limits;
  for (const ResourceLimit& limit : entry.limits)  // RLIM_INFINITY is -1 there
    limits.push_back(boost::json::array{limit.resource, static_cast<int64_t>(limit.value)});
  const auto* filter = reinterpret_cast<const unsigned char*>(entry.filter.data());
  boost::json::object request{
      {"words", boost::json::array(command.words.begin(), command.words.end())},
      {"environment", boost::json::array(command.environment.begin(), command.environment.end())},
      {"folder", command.folder},
      {"namespaces", entry.namespaces},
      {"niceness", entry.niceness},
      {"failed_step", entry.failed_step},
      {"limits", std::move(limits)},
      {"filter",
       fmt::format("{:02x}",
                   fmt::join(filter, filter + entry.filter.size() * sizeof(sock_filter), ""))}};
  if (entry.person.is_switched)
    request["person"] = boost::json::array{entry.person.user, entry.person.group};
  return boost::json::serialize(request);
}

}  // namespace

void ask_warm_process(const Command& command, const WarmEntry& entry) {
  const Descriptor socket = connection_to(command);
  std::string text = request_text(command, entry);
  std::vector<int> handed{entry.word,        entry.leash,       entry.standard[0],
                          entry.standard[1], entry.standard[2], entry.jail};
  if (entry.group >= 0) handed.push_back(entry.group);
  std::vector<char> control(CMSG_SPACE(handed.size() * sizeof(int)));
  iovec part{.iov_base = text.data(), .iov_len = text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(handed.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), handed.data(), handed.size() * sizeof(int));
  ssize_t count = 0;
  while ((count = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  if (count != static_cast<ssize_t>(text.size()))
    refuse(command, fmt::format("takes no request ({})", std::strerror(errno)));
}

}  // namespace slime::sandbox
