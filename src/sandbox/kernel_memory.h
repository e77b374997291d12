#pragma once

/// Memory that the kernel holds for the processes of a jail, besides their pages: what waits in sockets
/// and pipes, page tables, records of mappings, threads and locks. No process's size shows it.
///
/// Sockets are asked for by the kernel's own listing of the jail's network (sock_diag(7)): it has those that
/// nobody holds at the moment too, because they are on their way through another socket. Where there
/// is no such listing each counts with the most that it can hold. The rest is counted by how many there are.

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/descriptor.h"
#include "sandbox/entry.h"

namespace slime::sandbox {

/// The kernel's listing of a jail's sockets. Any thread.
class SocketListing final {
 public:
  /// `jail` is a pidfd of its first process, and outlives the object.
  SocketListing(int jail, Person person) : jail_(jail), person_(person) {}

  /// Bytes in the buffers of all sockets, or of enough of them to be above `limit_bytes`. Nothing where
  /// the kernel has no listing.
  std::optional<int64_t> bytes(int64_t limit_bytes);

 private:
  void open();

  const int jail_;
  const Person person_;
  std::mutex mutex_;
  bool is_open_ = false;  // or there is none; guarded by mutex_, as what follows
  Descriptor netlink_;
};

/// `processes_folder` is the jail's /proc, `processes` the names in it. An upper bound that costs little,
/// or something above `limit_bytes`.
int64_t most_kernel_memory(int processes_folder, const std::vector<std::string>& processes,
                           int64_t mapped_bytes, int64_t limit_bytes);
/// The figure, as exactly as it can be had; it may stop above `limit_bytes`.
int64_t kernel_memory(int processes_folder, const std::vector<std::string>& processes,
                      SocketListing& sockets, int64_t limit_bytes);

}  // namespace slime::sandbox
