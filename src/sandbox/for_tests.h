#pragma once

/// Helpers of the tests of the sandbox.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace slime::sandbox {

/// Why bubblewrap itself does not work here, if so, found without our code: a broken sandbox of ours
/// is then a failure and not a skipped test. Asked once.
inline const std::optional<std::string>& no_bubblewrap() {
  static const std::optional<std::string> kWhy = []() -> std::optional<std::string> {
    if (::access("/usr/bin/bwrap", X_OK) != 0)
      return "no /usr/bin/bwrap: install Debian's package bubblewrap";
    const std::string user =
        ::geteuid() == 0 ? "setpriv --reuid 65534 --regid 65534 --clear-groups " : "";
    const std::string command =
        user +
        "bwrap --unshare-user --unshare-pid --unshare-net --disable-userns --ro-bind / / "
        "--proc /proc true >/dev/null 2>&1";
    if (std::system(command.c_str()) != 0)  // NOLINT: a constant command
      return "bubblewrap cannot make name spaces for this user here";
    return std::nullopt;
  }();
  return kWhy;
}

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace slime::sandbox
