#pragma once

/// JSON as text that grows: what a stream repeats in each frame is appended to, never serialised
/// again.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slime::engine {

/// Appends `text` as the inside of a JSON string.
void append_escaped(std::string& out, std::string_view text);
/// The same with its quotes.
void append_json_string(std::string& out, std::string_view text);

/// A log-prob as JSON: shortest form that reads back as the same float32; minus infinity is the
/// lowest float32.
void append_log_prob(std::string& out, float log_prob);

/// Base64 of the little-endian bytes of int32 numbers.
std::string base64_of(const std::vector<std::int32_t>& numbers);
/// The same of float32.
std::string base64_of(const std::vector<float>& numbers);

/// Text of which incremental frames take what is new.
struct GrowingText {
  std::string text;
  std::size_t num_sent = 0;  // bytes

  /// All of it, or what is new since the last call; none of it is new afterwards.
  std::string_view take(bool only_new);
};

/// Elements of a JSON array, each followed by a comma.
struct ArrayText : GrowingText {
  /// Appends `,"name":[...]`, without the comma as an object's first member.
  void append_to(std::string& out, std::string_view name, bool only_new);
};

}  // namespace slime::engine
