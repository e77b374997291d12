#pragma once

/// Stream sockets in a folder of this user's alone, between processes that did not start one another.
///
/// The folder keeps other users out (mode 700), and both ends ask the kernel whose process the peer is.

#include <chrono>
#include <filesystem>
#include <optional>

namespace slime::cluster {

/// Makes the folder, or finds it. Throws ConfigError where it belongs to others, or others may read it.
void make_private_folder(const std::filesystem::path& folder);

/// Owns the socket, and the file of its name.
class LocalListener final {
 public:
  /// A file of that name that nobody listens at is replaced. Throws ConfigError.
  explicit LocalListener(std::filesystem::path path);
  ~LocalListener();
  LocalListener(const LocalListener&) = delete;
  LocalListener& operator=(const LocalListener&) = delete;

  /// The next connection of this user; nothing: none came in time.
  std::optional<int> accept_within(std::chrono::milliseconds limit);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Connected, to a process of this user; nothing: nobody listens there.
std::optional<int> connect_locally(const std::filesystem::path& path);

}  // namespace slime::cluster
