#pragma once

/// Answers of vLLM's token route, whole and as stream chunks:
///
///   {"request_id": "a", "model": "m", "created": 1, "usage": {...}, "choices": [{"index": 0,
///    "finish_reason": "stop", "stop_reason": null, "token_ids": [19, 151645], "logprobs":
///    {"content": [{"token": "token_id:19", "logprob": -0.0121}, ...]}, ...}]}
///
/// With log-probs each token has one entry, spelled by its id: trainers refuse anything else. They
/// are of the distribution at the request's temperature, before cuts like top_p.

#include <functional>
#include <string>
#include <vector>

#include "engine/client.h"
#include "engine/http/generate_response.h"
#include "engine/http/openai_logprobs.h"
#include "engine/http/output_text.h"
#include "engine/http/served_model.h"
#include "engine/http/token_route_request.h"

namespace slime::engine {

/// One choice: what its request has produced so far. One class because each update adds to all of it.
class TokenRouteChoice {
 public:
  /// `call`, its requests excepted, and `model` outlive the object.
  TokenRouteChoice(const TokenRouteCall& call, std::size_t index, const ServedModel& model);

  void add(const GenerateUpdate& update);

  const ResponseTotals& totals() const { return totals_; }

  /// The choice as JSON: its tokens since the last call, and with the last of them what is known at
  /// the end only.
  void append_to(std::string& out, const std::function<std::string(WeightVersion)>& name_version);
  /// Whether append_to() has something to say.
  bool has_news() const;

  /// The prompt's log-probs, one entry per token: null, then {"ID": {"logprob", "rank",
  /// "decoded_token"}, ...} of the token and its rivals.
  void append_prompt_logprobs(std::string& out) const;

 private:
  void append_logprobs(std::string& out, std::size_t first) const;
  void append_end(std::string& out,
                  const std::function<std::string(WeightVersion)>& name_version) const;
  void append_routed_experts(std::string& out) const;
  json::value stop_reason() const;

  const TokenRouteCall& form_;
  const std::size_t index_;
  const ServedModel& model_;
  std::vector<TokenId> stop_token_ids_;
  std::optional<OutputText> text_;
  std::vector<TokenId> prompt_ids_;  // only when something of it is returned
  ChoiceTokens tokens_;
  std::vector<TokenId> kept_ids_;  // the sampling mask, flat
  std::vector<std::int64_t> kept_counts_;
  std::vector<std::int16_t> routed_experts_;
  std::int64_t routed_start_ = 0;
  std::int64_t prompt_length_ = 0;
  ResponseTotals totals_;
  std::size_t num_told_ = 0;       // tokens
  std::size_t num_text_told_ = 0;  // bytes
  bool has_told_end_ = false;
};

/// {"prompt_tokens":..,"completion_tokens":..,"total_tokens":..,"prompt_tokens_details":..}: the
/// prompt counts once.
json::object usage_of(const std::vector<TokenRouteChoice>& choices);

}  // namespace slime::engine
