#pragma once

/// Reuse of freed memory: training on a CPU takes and frees the same activations, tens of megabytes each, again and again.
/// By itself the C library gives blocks of that size back to the system at once, which fills their
/// pages with zeros before it hands them out again: an eighth of a training step (SmolLM2-135M, 4,096
/// tokens, two cores).

namespace slime::train {

/// From now on this process keeps what it frees; malloc_trim() still gives it back
/// (report/heap_trim.h). Does nothing with another C library than glibc.
void keep_freed_memory();

}  // namespace slime::train
