#include "cluster/local_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace slime::cluster {
namespace {

constexpr int kWaiting = 8;  // connections that may wait to be accepted

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = path.string();
  if (name.size() >= sizeof(address.sun_path)) {
    throw ConfigError(fmt::format("{}: too long for the name of a socket, which has {} characters",
                                  name, sizeof(address.sun_path) - 1));
  }
  std::ranges::copy(name, address.sun_path);
  return address;
}

bool is_of_this_user(int descriptor) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

int open_socket() {
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) throw ConfigError(fmt::format("no local socket: {}", std::strerror(errno)));
  return descriptor;
}

}  // namespace

void make_private_folder(const std::filesystem::path& folder) {
  if (folder.has_parent_path()) {
    std::error_code ignored;
    std::filesystem::create_directories(folder.parent_path(), ignored);
  }
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw ConfigError(fmt::format("{}: {}", folder.string(), std::strerror(errno)));
  struct stat status {};
  const bool is_folder = ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  if (!is_folder || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0) {
    throw ConfigError(fmt::format(
        "{}: should be a folder of yours that others cannot read (chmod 700)", folder.string()));
  }
}

LocalListener::LocalListener(std::filesystem::path path) : path_(std::move(path)) {
  const sockaddr_un address = address_of(path_);
  if (const auto other = connect_locally(path_)) {
    ::close(*other);
    throw ConfigError(fmt::format("{}: another process listens there", path_.string()));
  }
  ::unlink(path_.c_str());
  descriptor_ = open_socket();
  if (::bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      ::listen(descriptor_, kWaiting) == 0)
    return;
  const std::string why = std::strerror(errno);
  ::close(descriptor_);
  throw ConfigError(fmt::format("{}: cannot be listened at: {}", path_.string(), why));
}

LocalListener::~LocalListener() {
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

std::optional<int> LocalListener::accept_within(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return std::nullopt;
    pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
    constexpr int64_t kLongest = 3'600'000;
    if (::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left.count(), kLongest))) <= 0)
      continue;
    const int peer = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer < 0) continue;
    if (is_of_this_user(peer)) return peer;
    ::close(peer);
  }
}

std::optional<int> connect_locally(const std::filesystem::path& path) {
  const sockaddr_un address = address_of(path);
  const int descriptor = open_socket();
  if (::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      is_of_this_user(descriptor))
    return descriptor;
  ::close(descriptor);
  return std::nullopt;
}

}  // namespace slime::cluster
