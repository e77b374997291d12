#pragma once

/// Resource usage of a jail's processes together, read from outside through the jail's own /proc.

#include <cstdint>

#include "sandbox/kernel_memory.h"

namespace slime::sandbox {

/// Bytes of anonymous memory of all processes and of what the kernel holds for them, or a lower bound that is
/// at most `limit_bytes` when they stay within it: the exact figure costs more and is computed only where
/// it can be above.
///
/// Counted are what sandbox/kernel_memory.h counts, private pages (those that forked processes share, once) and swapped ones, and mappings
/// that are shared and have no file with their whole size: their pages can be kept without being
/// mapped at the moment. Files in /work are not, they have a limit of their own.
int64_t memory_in_use(int processes_folder, SocketListing& sockets, int64_t limit_bytes);

/// Files and folders in a jail's /work.
int64_t files_in_use(int work_folder);

}  // namespace slime::sandbox
