#pragma once

/// A tiny untrained model of `slime check`, and rows to train it on, as files that every command reads.

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/json.h"

namespace slime::acceptance {

struct TinyShape {
  int64_t hidden = 256;
  int64_t layers = 2;
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t head_dim = 64;
};

/// config.json of a Qwen3 of this shape whose vocabulary is the bytes and the marks of a conversation.
json::object tiny_config(const TinyShape& shape);

/// Writes config.json, weights in float32 that are a function of the shape alone, tokenizer.json and
/// tokenizer_config.json into `directory`, which it makes.
void write_tiny_model(const std::filesystem::path& directory, const TinyShape& shape);

/// Sums as conversations with their answers ("messages"), and as prompts with labels ("prompt", "label").
void write_tiny_rows(const std::filesystem::path& file, int64_t count);

}  // namespace slime::acceptance
