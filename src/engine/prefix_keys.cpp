#include "engine/prefix_keys.h"

namespace slime::engine {

std::span<const TokenKey> prefix_keys(Request& request, int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  if (request.prefix_keys.size() < size) {
    extend_keys(request.prefix_keys, std::span(request.tokens).first(size), request.client.media,
                key_salt(request.client.cache_salt, request.rotary_offset));
  }
  return std::span<const TokenKey>(request.prefix_keys).first(size);
}

}  // namespace slime::engine
