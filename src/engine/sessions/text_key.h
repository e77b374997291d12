#pragma once

/// Fingerprints of 128 bits: what texts, calls and tools are compared by, so that a session keeps none
/// of the words that its clients send.

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/splitmix64.h"

namespace slime::engine {

struct TextKey {
  uint64_t first = 0;
  uint64_t second = 0;
  auto operator<=>(const TextKey&) const = default;
};

/// Of a sequence of texts: ("ab", "c") and ("a", "bc") differ.
class TextKeyWriter final {
 public:
  TextKeyWriter& add(std::string_view text) {
    for (const char byte : text) {
      const auto value = static_cast<unsigned char>(byte);
      key_.first = (key_.first ^ value) * 0x100000001b3;  // FNV-1a
      key_.second = (key_.second + value + 1) * 0xd6e8feb86659fd93;
      key_.second ^= key_.second >> 32;
    }
    return add(static_cast<uint64_t>(text.size()));
  }
  TextKeyWriter& add(uint64_t number) {
    key_.first = splitmix64(key_.first ^ number);
    key_.second = splitmix64(key_.second + ~number);
    return *this;
  }
  TextKeyWriter& add(const TextKey& key) { return add(key.first).add(key.second); }
  TextKey key() const { return key_; }

 private:
  TextKey key_{0xcbf29ce484222325, 0x9ae16a3b2f90404f};
};

inline TextKey key_of(std::string_view text) { return TextKeyWriter().add(text).key(); }

/// JSON in one spelling: members by name, those that are null left out, whole numbers without a
/// fraction.
std::string canonical_json(const json::value& value);

/// A call's arguments, given as JSON text or as a value, in one spelling; text that is no JSON without the
/// white space around it.
std::string canonical_arguments(const json::value& arguments);

}  // namespace slime::engine
