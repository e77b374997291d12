#pragma once

/// Facts of a request that decide where it goes: its ids, the conversation that it belongs to, and its
/// prompt.
///
/// The body is looked at as text: the spans of the values at its top. It is not checked: what is no
/// JSON has no facts, and the worker says what is wrong with it.

#include <string>
#include <string_view>
#include <vector>

#include "net/http_message.h"

namespace slime::gateway {

struct RequestFacts {
  std::vector<std::string> rids;  // of "rid": what an abort may name
  /// The name of the model that is asked; empty: none is named.
  std::string model;
  /// Of a session that one worker keeps (/sessions/NAME, or the header X-Slime-Session): whatever the
  /// policy, its requests go to that worker. Empty: there is none.
  std::string session;
  /// Of a conversation or session; empty: there is none. The header X-SMG-Routing-Key comes first.
  std::string routing_key;
  /// The text of the prompt's field without its last bracket or quote, which a longer prompt does not
  /// have there. Part of the request's body.
  std::string_view prompt;
};

/// `request` outlives the result.
RequestFacts facts_of(const net::HttpRequest& request);

/// One member of the object that `text` holds.
struct MemberSpan {
  std::string_view name;   // between the quotes, as it stands
  std::string_view value;  // as it stands
};

/// The members at the top, up to the first mistake that is noticed, at most `limit`.
std::vector<MemberSpan> top_members(std::string_view text, std::size_t limit = 256);

}  // namespace slime::gateway
