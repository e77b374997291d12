// Bytes to a request head, which no access rule lets through without its key, and to a chunked body split
// in two at every possible place.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "net/access.h"
#include "net/cross_origin.h"
#include "net/request_head.h"

namespace {

/// Routes that want a key are closed to a head in which it does not stand.
void ask_for_access(const slime::net::RequestHead& head, std::string_view text) {
  using slime::net::RouteClass;
  const slime::net::AccessRules rules{.api_key = "fuzzed-key"};
  for (const RouteClass route : {RouteClass::kInference, RouteClass::kControl, RouteClass::kWeights,
                                 RouteClass::kDebug, RouteClass::kProbe}) {
    const bool is_open = !slime::net::find_refusal(rules, route, head);
    if (is_open && route != RouteClass::kProbe && text.find(rules.api_key) == text.npos)
      std::abort();
  }
  (void)slime::net::find_refusal({}, RouteClass::kControl, head);
  (void)slime::net::cross_origin_headers(rules, head);
  if (slime::net::is_preflight(head)) (void)slime::net::preflight_response(head, "GET, POST");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using slime::net::ChunkedBody;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = slime::net::parse_request_head(text);
  if (const auto* head = std::get_if<slime::net::RequestHead>(&parsed)) ask_for_access(*head, text);

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
