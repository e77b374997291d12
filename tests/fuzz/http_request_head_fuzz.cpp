// Bytes to a request head, and to a chunked body split in two at every possible place.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "net/request_head.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using slime::net::ChunkedBody;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)slime::net::parse_request_head(text);

  const auto decode = [&](std::size_t split) {
    ChunkedBody decoder(1 << 16);
    std::string body;
    std::string_view first = text.substr(0, split), second = text.substr(split);
    ChunkedBody::State state = decoder.feed(first, body);
    if (state == ChunkedBody::State::kNeedsMore) state = decoder.feed(second, body);
    return std::pair(state, body);
  };
  const auto whole = decode(size);
  if (size < 64) {
    for (std::size_t split = 0; split < size; ++split) {
      if (decode(split) != whole) std::abort();  // what arrives when must not matter
    }
  }
  return 0;
}
