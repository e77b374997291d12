#pragma once

/// Attention of one layer in a decode step on the GPU: normed and rotated heads, the new keys and
/// values into their pages, and all earlier ones read, against the speed of memory.

#include <cstdint>
#include <string>
#include <vector>

namespace slime::bench {

struct DecodeAttentionOptions {
  std::vector<int64_t> batches{1, 8, 32, 128, 256};
  int64_t keys = 1024;  // of each sequence, its prompt included
  int64_t prompt = 0;   // keys that `samples` sequences share
  int64_t samples = 8;
  int64_t heads = 32, kv_heads = 8, head_dim = 128;
  std::string kv_cache_dtype = "auto";  // bfloat16; or fp8_e4m3
};

/// Prints one JSON line per batch size, two where prompts are shared, and two for heads of 256, of which
/// one does not split keys.
void measure_decode_attention(const DecodeAttentionOptions& options);

}  // namespace slime::bench
