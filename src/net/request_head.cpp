#include "net/request_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace slime::net {
namespace {

constexpr std::size_t kMaxHeaders = 100;
constexpr std::size_t kMaxChunkLine = 256;
constexpr std::size_t kMaxTrailerBytes = 4096;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// RFC 9110 section 5.6.2.
bool is_token_char(char c) {
  if (is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
  return std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

/// Visible characters, space, tab, and bytes above 127.
bool is_field_char(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
}

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::optional<std::uint64_t> parse_decimal(std::string_view text) {
  if (text.empty() || text.size() > 19 || !std::all_of(text.begin(), text.end(), is_digit)) {
    return std::nullopt;
  }
  std::uint64_t value = 0;
  for (const char c : text) value = value * 10 + static_cast<std::uint64_t>(c - '0');
  return value;
}

/// True when the comma-separated `list` names `word`.
bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    if (equals_ignoring_case(trim(list.substr(0, end)), word)) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

/// Takes the text before the next CRLF. Nothing when there is none or the line holds another CR or
/// LF.
std::optional<std::string_view> take_line(std::string_view& text) {
  const std::size_t end = text.find("\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(0, end);
  if (line.find_first_of("\r\n") != std::string_view::npos) return std::nullopt;
  text.remove_prefix(end + 2);
  return line;
}

HeadProblem problem(std::string message, int status = 400) { return {status, std::move(message)}; }

std::optional<HeadProblem> parse_target(std::string_view target, RequestHead& head) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;  // absolute form, as sent to proxies
    const std::size_t slash = target.find('/', scheme.size());
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  const bool is_asterisk = target == "*" && head.method == "OPTIONS";
  if (!is_asterisk && !target.starts_with('/')) return problem("the request target is not a path");
  const auto is_bad = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte <= 0x20 || byte >= 0x7f || c == '#';
  };
  if (std::any_of(target.begin(), target.end(), is_bad)) {
    return problem("the request target holds a character that must be percent-encoded");
  }
  const std::size_t mark = std::min(target.find('?'), target.size());
  std::optional<std::string> path = percent_decode(target.substr(0, mark), false);
  if (!path || path->find('\0') != std::string::npos) {
    return problem("the request target has a broken percent-encoding");
  }
  head.path = std::move(*path);
  head.target = target;
  head.query = target.substr(std::min(mark + 1, target.size()));
  return std::nullopt;
}

std::optional<HeadProblem> parse_request_line(std::string_view line, RequestHead& head) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return problem("malformed request line");
  const std::string_view method = line.substr(0, first);
  const std::string_view version = line.substr(last + 1);
  if (!is_header_name(method)) return problem("malformed method");
  if (version.size() != 8 || !version.starts_with("HTTP/") || !is_digit(version[5]) ||
      version[6] != '.' || !is_digit(version[7])) {
    return problem("malformed HTTP version");
  }
  if (version[5] != '1') return problem("this server speaks HTTP/1.1", 505);
  head.is_http_1_0 = version[7] == '0';
  head.method = method;
  return parse_target(line.substr(first + 1, last - first - 1), head);
}

std::optional<HeadProblem> parse_field(std::string_view line, RequestHead& head) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_header_name(line.substr(0, colon))) {
    return problem("malformed header field");  // folded lines and a space before the colon too
  }
  const std::string_view value = trim(line.substr(colon + 1));
  if (!std::all_of(value.begin(), value.end(), is_field_char)) {
    return problem("a header field holds a control character");
  }
  if (head.headers.size() == kMaxHeaders) return problem("too many header fields", 431);
  head.headers.emplace_back(line.substr(0, colon), value);
  return std::nullopt;
}

/// How long the body is and whether the connection lives on.
std::optional<HeadProblem> apply_fields(RequestHead& head) {
  std::size_t num_hosts = 0, num_lengths = 0, num_codings = 0;
  head.keeps_alive = !head.is_http_1_0;
  for (const auto& [name, value] : head.headers) {
    if (equals_ignoring_case(name, "Host")) {
      ++num_hosts;
      if (value.find_first_of(" \t,/@") != std::string::npos) return problem("malformed Host");
    } else if (equals_ignoring_case(name, "Content-Length")) {
      const auto length = parse_decimal(value);
      if (!length) return problem("malformed Content-Length");
      head.content_length = *length;
      ++num_lengths;
    } else if (equals_ignoring_case(name, "Transfer-Encoding")) {
      if (!equals_ignoring_case(value, "chunked")) return problem("unknown Transfer-Encoding", 501);
      head.is_chunked = true;
      ++num_codings;
    } else if (equals_ignoring_case(name, "Connection")) {
      if (has_word(value, "close")) head.keeps_alive = false;
      if (head.is_http_1_0 && has_word(value, "keep-alive")) head.keeps_alive = true;
    } else if (equals_ignoring_case(name, "Expect")) {
      if (!equals_ignoring_case(value, "100-continue")) return problem("unknown expectation", 417);
      head.expects_continue = !head.is_http_1_0;
    }
  }
  if (num_hosts > 1 || (num_hosts == 0 && !head.is_http_1_0)) {
    return problem("a request has exactly one Host field");
  }
  if (num_lengths > 1) return problem("repeated Content-Length");
  if (num_codings > 1) return problem("repeated Transfer-Encoding");
  if (num_codings == 1 && (num_lengths == 1 || head.is_http_1_0)) {
    return problem("Transfer-Encoding beside Content-Length or in HTTP/1.0");
  }
  return std::nullopt;
}

}  // namespace

bool is_header_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

std::variant<RequestHead, HeadProblem> parse_request_head(std::string_view text) {
  RequestHead head;
  const auto request_line = take_line(text);
  if (!request_line) return problem("malformed request line");
  if (auto bad = parse_request_line(*request_line, head)) return std::move(*bad);
  for (;;) {
    const auto line = take_line(text);
    if (!line) return problem("malformed header field");
    if (line->empty()) break;
    if (auto bad = parse_field(*line, head)) return std::move(*bad);
  }
  if (auto bad = apply_fields(head)) return std::move(*bad);
  return head;
}

ChunkedBody::State ChunkedBody::end_line(std::string& body) {
  switch (part_) {
    case Part::kDataEnd:
      if (!line_.empty()) return State::kMalformed;
      part_ = Part::kSize;
      break;
    case Part::kTrailer:
      if (line_.empty()) {
        is_done_ = true;
        return State::kDone;
      }
      break;
    case Part::kSize: {
      const std::string_view digits = trim(std::string_view(line_).substr(0, line_.find(';')));
      if (digits.empty() || digits.size() > 15) return State::kMalformed;
      remaining_ = 0;
      for (const char c : digits) {
        const std::size_t value =
            std::string_view("0123456789abcdef")
                .find(static_cast<char>(c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c));
        if (value == std::string_view::npos) return State::kMalformed;
        remaining_ = remaining_ * 16 + value;
      }
      if (remaining_ > limit_bytes_ - std::min(limit_bytes_, body.size())) return State::kTooLarge;
      part_ = remaining_ == 0 ? Part::kTrailer : Part::kData;
      break;
    }
    case Part::kData:
      break;
  }
  line_.clear();
  return State::kNeedsMore;
}

ChunkedBody::State ChunkedBody::feed(std::string_view& input, std::string& body) {
  while (!input.empty()) {
    if (is_done_) return State::kDone;
    if (part_ == Part::kData) {
      const std::size_t count = std::min<std::uint64_t>(remaining_, input.size());
      body.append(input.substr(0, count));
      input.remove_prefix(count);
      remaining_ -= count;
      if (remaining_ == 0) part_ = Part::kDataEnd;
      continue;
    }
    const char c = input.front();
    input.remove_prefix(1);
    if (c == '\n') {
      if (line_.empty() || line_.back() != '\r') return State::kMalformed;
      line_.pop_back();
      if (const State state = end_line(body); state != State::kNeedsMore) return state;
      continue;
    }
    if (!line_.empty() && line_.back() == '\r') return State::kMalformed;
    if (c != '\r' && !is_field_char(c)) return State::kMalformed;
    line_ += c;
    if (part_ == Part::kTrailer && ++trailer_bytes_ > kMaxTrailerBytes) return State::kTooLarge;
    if (line_.size() > (part_ == Part::kTrailer ? kMaxTrailerBytes : kMaxChunkLine)) {
      return State::kMalformed;
    }
  }
  return is_done_ ? State::kDone : State::kNeedsMore;
}

}  // namespace slime::net
