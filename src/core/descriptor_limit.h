#pragma once

/// Limit of this process's open files: checkpoints of a thousand shards and thousands of clients need more than the
/// 1024 that many systems start programs with.

namespace slime {

/// To what the system allows without privileges (ulimit -Hn), and at most a million: programs that are started from
/// here inherit it, and some look at every number below it.
void raise_descriptor_limit();

}  // namespace slime
