#pragma once

/// Check after each token whether a response ends with it: end-of-sequence and stop ids, stop
/// strings.
///
/// Stop strings are looked for in the bytes that the tokens add to the text, so a string may begin
/// and end inside tokens. One object per request.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/client.h"

namespace slime::engine {

/// The bytes a token adds to the decoded text (text::Tokenizer::token_bytes).
using TokenBytesFn = std::function<std::string_view(TokenId)>;

class StopChecker {
 public:
  /// References must outlive the checker. `token_bytes` may be empty when there are no stop
  /// strings.
  StopChecker(const SamplingParams& params, const std::vector<TokenId>& eos_ids,
              const TokenBytesFn& token_bytes);

  /// Call with every new token in order. A reason (kStop) when the response ends with this one. No
  /// stop string ends it before min_new_tokens; stop ids are kept out by the sampler, which does not
  /// draw them before.
  std::optional<FinishReason> push(TokenId id);

  /// Tokens of the response that were sampled by a call before, and did not end it: a stop string may
  /// begin in them. Before the first push().
  void recall(std::span<const TokenId> ids);

  /// Ids that end a response: the stop ids, and the end-of-sequence ids unless ignored.
  bool is_stop_id(TokenId id) const;

 private:
  void forget_old_bytes();

  const SamplingParams& params_;
  const std::vector<TokenId>& eos_ids_;
  const TokenBytesFn& token_bytes_;
  int64_t num_pushed_ = 0;
  std::size_t longest_stop_ = 0;
  std::string tail_;  // the last bytes of the response, one less than the longest stop string
};

}  // namespace slime::engine
