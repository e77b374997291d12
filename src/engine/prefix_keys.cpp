#include "engine/prefix_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/xxhash64.h"

namespace slime::engine {
namespace {

/// No token: those are not negative.
TokenId bits_of(uint64_t hash) { return static_cast<TokenId>(hash | 0x8000'0000U); }

/// The first two tokens become 62 bits that depend on them and on the space; all else stays.
void start_keys(Request& request) {
  const auto count = std::min<std::size_t>(2, request.tokens.size());
  request.prefix_keys.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string text =
        fmt::format("{}/{}/{}/{}", request.tokens[0], i == 0 ? 0 : request.tokens[1],
                    request.rotary_offset, request.client.cache_salt);
    request.prefix_keys.push_back(bits_of(xxhash64(text, i)));
  }
}

}  // namespace

std::span<const TokenId> prefix_keys(Request& request, int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  if (request.rotary_offset == 0 && request.client.cache_salt.empty())
    return std::span(request.tokens).first(size);
  std::vector<TokenId>& keys = request.prefix_keys;
  if (keys.size() < std::min<std::size_t>(2, size)) start_keys(request);
  for (std::size_t i = keys.size(); i < size; ++i) keys.push_back(request.tokens[i]);
  return std::span<const TokenId>(keys).first(size);
}

bool share_prefixes(const Request& a, const Request& b) {
  return a.rotary_offset == b.rotary_offset && a.client.cache_salt == b.client.cache_salt;
}

}  // namespace slime::engine
