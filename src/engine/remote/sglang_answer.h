#pragma once

/// Answer of a server of SGLang's protocol to one /generate, read frame by frame: each frame tells
/// everything so far, or, with --incremental-streaming-output, what is new. Which of both is told by
/// the count of tokens beside them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "engine/client.h"

namespace slime::engine {

/// The body of the request.
json::object sglang_request(const GenerateRequest& request, const std::string& rid);

/// The message of an answer that is an error, in whichever of the protocol's forms.
std::string sglang_error_text(const std::string& body);

class SglangAnswer final {
 public:
  explicit SglangAnswer(const GenerateRequest& request)
      : wants_log_probs_(request.return_logprob),
        wants_top_(request.return_logprob && request.top_logprobs_num > 0),
        wants_input_(request.return_logprob && request.logprob_start_len >= 0) {}

  /// What `frame`, an object of JSON, adds to the frames before it. Throws ConfigError for what is no
  /// answer, an error of the server's among it.
  GenerateUpdate add(std::string_view frame);

  int64_t num_tokens() const { return num_tokens_; }
  /// The server's word for the weights, of the last frame; empty: it told none.
  const std::string& weight_version() const { return weight_version_; }

 private:
  bool wants_log_probs_;
  bool wants_top_;
  bool wants_input_;
  bool has_input_ = false;
  int64_t num_tokens_ = 0;
  DraftCounts drafts_;  // told so far
  std::string weight_version_;
};

/// Splits server-sent events as their bytes arrive; the data of each.
class EventSplitter final {
 public:
  explicit EventSplitter(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  void add(std::string_view bytes) { bytes_ += bytes; }
  /// The data of the next whole event. Throws ConfigError beyond the limit.
  std::optional<std::string> next();

 private:
  std::size_t limit_bytes_;
  std::string bytes_;
  std::size_t begin_ = 0;  // of what was not given out
};

}  // namespace slime::engine
