#pragma once

/// `slime bench decode-attention`: attention of one layer in a decode step on the GPU, against the
/// speed of memory.

#include <span>
#include <string>

namespace slime::cli {

/// One JSON line per batch size, two where prompts are shared. Returns the exit code.
int bench_decode_attention(std::span<const std::string> arguments);

}  // namespace slime::cli
