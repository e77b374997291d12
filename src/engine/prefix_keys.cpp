#include "engine/prefix_keys.h"

#include <fmt/format.h>

#include "engine/served_adapters.h"

namespace slime::engine {

namespace {

/// Keys and values of an adapter are its version's alone.
std::string salt_of(const Request& request) {
  if (request.adapter == nullptr) return request.client.cache_salt;
  return fmt::format("{} adapter {}", request.client.cache_salt, request.adapter->number);
}

}  // namespace

std::span<const TokenKey> prefix_keys(Request& request, int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  if (request.prefix_keys.size() < size) {
    extend_keys(request.prefix_keys, std::span(request.tokens).first(size), request.client.media,
                key_salt(salt_of(request), request.rotary_offset));
  }
  return std::span<const TokenKey>(request.prefix_keys).first(size);
}

}  // namespace slime::engine
