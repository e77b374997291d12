#pragma once

/// The system calls that code in a sandbox may make: a list of what programs and compilers need.
///
/// What is not on it does not exist there (ENOSYS): mounting, other name spaces, tracing, io_uring,
/// keyrings, BPF, System V memory, memory files. Of some the arguments count too: clone makes no name
/// space, sockets are local or of the Internet's families (in a network of its own, which leads
/// nowhere), a terminal takes no typed text. Calls of another architecture end the process. Beside a
/// GPU two more exist: CUDA binds the memory of its threads to a NUMA node.

#include <linux/filter.h>

#include <vector>

#include "sandbox/entry.h"

namespace slime::sandbox {

/// For seccomp(2). x86-64.
std::vector<sock_filter> system_call_filter(Device device);

}  // namespace slime::sandbox
