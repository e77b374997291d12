#include "report/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "core/error.h"
#include "core/field_reader.h"

namespace slime::report {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

/// "2026-11-23 03:44:42 UTC"
std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

std::string own_record() {
  const json::object record{{"pid", ::getpid()}, {"host", host_name()}, {"started", time_text()}};
  return json_text(record) + "\n";
}

/// "process 4711 on node3, since 2026-11-23 03:44:42 UTC".
std::string holder_of(int descriptor) {
  std::array<char, 1024> text{};
  const ssize_t size = ::pread(descriptor, text.data(), text.size(), 0);
  if (size < 0) return "another process";
  json::error_code error;
  const json::value record = json::parse({text.data(), static_cast<std::size_t>(size)}, error);
  std::vector<std::string> problems;
  const json::object nothing;
  const FieldReader fields =
      FieldReader(error || !record.is_object() ? nothing : record.get_object(), "", problems)
          .required();
  const auto pid = fields.integer("pid");
  const auto host = fields.text("host");
  const auto started = fields.text("started");
  // Who has the lock may not have said yet who it is.
  if (!problems.empty()) return "another process";
  return fmt::format("process {} on {}, since {}", *pid, *host, *started);
}

enum class Locking { kGot, kTaken, kNotThere };

/// Some file systems have no locks; there nobody can be kept out.
Locking lock(int descriptor) {
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Locking::kTaken;
    if (errno != EINTR) return Locking::kNotThere;
  }
  return Locking::kGot;
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder, const std::string& flag)
    : descriptor_(::open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0)
    throw ConfigError(
        fmt::format("{} {}: is not writable: {}", flag, folder.string(), std::strerror(errno)));
  const Locking locking = lock(descriptor_);
  keeps_others_out_ = locking == Locking::kGot;
  if (locking == Locking::kTaken) {
    const std::string holder = holder_of(descriptor_);
    ::close(descriptor_);
    throw ConfigError(fmt::format(
        "{} {}: belongs to a run that goes on: {}; wait until it has ended, or give another {}",
        flag, folder.string(), holder, flag));
  }
  const std::string record = own_record();
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, record.data(), record.size(), 0) !=
                                              static_cast<ssize_t>(record.size())) {
    const int reason = errno;
    ::close(descriptor_);
    throw ConfigError(fmt::format("{} {}: its lock cannot be written: {}", flag, folder.string(),
                                  std::strerror(reason)));
  }
}

RunLock::~RunLock() { ::close(descriptor_); }

}  // namespace slime::report
