#pragma once

/// The head of an HTTP/1.1 request: request line and header fields, parsed strictly (RFC 9112).
///
/// Two servers that read the same bytes differently let an attacker smuggle a request past one of
/// them. So whatever the RFC calls a sender's mistake is refused here: bare LF or CR, folded lines,
/// space before a colon, Content-Length that is repeated, signed or beside Transfer-Encoding, a
/// transfer coding other than chunked. Beast's parser forgives several of these, which is why the
/// head has its own.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "net/http_message.h"

namespace slime::net {

struct RequestHead {
  std::string method;
  std::string path;    // percent-decoded
  std::string query;   // as it stood
  std::string target;  // path and query, as they stood
  HttpHeaders headers;
  std::uint64_t content_length = 0;  // 0 when chunked
  bool is_chunked = false;
  bool keeps_alive = true;   // HTTP/1.1 without "Connection: close", or HTTP/1.0 with keep-alive
  bool is_http_1_0 = false;  // such a client cannot read chunks
  bool expects_continue = false;  // waits for "100 Continue" before it sends the body

  bool has_body() const { return is_chunked || content_length > 0; }
};

/// Why a request is refused. The connection cannot be used further: nobody knows where the next
/// request would start.
struct HeadProblem {
  int status = 400;
  std::string message;
};

/// A token of RFC 9110.
bool is_header_name(std::string_view text);

/// `text` runs up to and includes the empty line that ends the head.
std::variant<RequestHead, HeadProblem> parse_request_head(std::string_view text);

/// Decodes "Transfer-Encoding: chunked" as bytes arrive. Trailer fields are read and dropped.
class ChunkedBody {
 public:
  enum class State { kNeedsMore, kDone, kMalformed, kTooLarge };

  explicit ChunkedBody(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  /// Takes bytes from the front of `input`, appends decoded ones to `body`. After kDone the rest of
  /// `input` belongs to the next request.
  State feed(std::string_view& input, std::string& body);

 private:
  enum class Part { kSize, kData, kDataEnd, kTrailer };
  State end_line(std::string& body);

  std::size_t limit_bytes_;
  Part part_ = Part::kSize;
  std::string line_;             // of kSize, kDataEnd and kTrailer, so far
  std::uint64_t remaining_ = 0;  // bytes of the chunk that are still to come
  std::size_t trailer_bytes_ = 0;
  bool is_done_ = false;
};

}  // namespace slime::net
