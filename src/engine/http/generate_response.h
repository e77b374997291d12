#pragma once

/// SGLang's response object, grown update by update:
///
///   {"text":"4<|im_end|>","output_ids":[19,151645],"meta_info":{"id":"9f0c","finish_reason":{"type":"stop",
///    "matched":151645},"prompt_tokens":3,...,"output_token_logprobs":[[-0.0121,19,null],[-0.0003,151645,null]]}}
///
/// A stream repeats the whole object in each frame, so each array is kept as the JSON text it has
/// so far and only appended to: a frame costs a copy, never a second serialisation. Needs no HTTP:
/// `slime generate` prints the same object.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/client.h"
#include "engine/http/json_text.h"
#include "engine/http/output_text.h"

namespace slime::engine {

struct ResponseForm {
  bool returns_text_in_logprobs = false;
  bool returns_prompt_token_ids = false;
  bool is_incremental = false;  // each to_json() holds what is new since the one before
  /// The name of a weight version, SGLang's "weight_version"; unset: its number.
  std::function<std::string(WeightVersion)> name_version;
};

/// What the updates so far add up to, beside their tokens.
struct ResponseTotals {
  std::int64_t num_output = 0;
  std::int64_t num_constrained = 0;  // the last so many were drawn under a grammar
  DraftCounts drafts;
  std::vector<VersionRun> versions;
  std::optional<WeightVersion> scored_by;  // the prompt
  std::optional<FinishReason> finish;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t num_retractions = 0;
  double queue_seconds = 0;
  double total_seconds = 0;

  void add(const GenerateUpdate& update);
};

/// One class because every form of an answer is made of the same updates, each of which changes all of
/// it.
class GenerateResponse {
 public:
  /// The tokenizer outlives the object; without one the response has no text. `request` may be gone
  /// after the call.
  GenerateResponse(const GenerateRequest& request, const text::Tokenizer* tokenizer,
                   ResponseForm form);

  void add(const GenerateUpdate& update);

  bool is_finished() const { return totals_.finish.has_value(); }
  const std::optional<FinishReason>& finish() const { return totals_.finish; }

  /// The object. `index`, its place in a batch, is written when it is not negative.
  std::string to_json(std::int64_t index = -1);

 private:
  /// What the request asked for beside the tokens.
  struct Wanted {
    bool logprob = false;
    bool free_logprob = false;
    bool top = false;
    bool asked = false;               // token_ids_logprob
    std::int64_t logprob_start = -1;  // of the prompt; -1: none
    std::int64_t topk = 0;            // of `top`
    bool top_p_ids = false;
    bool top_p_log_probs = false;
    bool routed_experts = false;
    std::int64_t routed_experts_start = 0;
  };
  /// The arrays of the object.
  struct Arrays {
    ArrayText output_ids, output_log_probs, free_log_probs, output_top, output_asked;
    ArrayText input_log_probs, input_top, input_asked;
  };
  /// Of the new tokens, whole in the last frame.
  struct TopPIds {
    std::vector<TokenId> ids;
    std::vector<std::int32_t> offsets{0};
    std::vector<float> log_probs;
  };
  /// The best of each, as many of each: numbers beside the text of output_top.
  struct TopK {
    std::vector<TokenId> ids;
    std::vector<float> log_probs;
  };

  void append_triple(std::string& out, std::optional<float> log_prob, TokenId id) const;
  void append_top(ArrayText& array, const std::vector<std::pair<float, TokenId>>& best) const;
  void append_meta(std::string& out);

  const text::Tokenizer* tokenizer_;
  ResponseForm form_;
  Wanted wanted_;
  std::string rid_;
  std::vector<TokenId> prompt_;  // only when something of it is returned
  std::optional<OutputText> text_;
  GrowingText escaped_text_;  // of the visible text, without quotes
  std::size_t num_escaped_ = 0;
  Arrays arrays_;
  TopPIds top_p_;
  TopK topk_;
  std::vector<std::int32_t> routed_experts_;  // whole in the last frame
  std::int64_t num_input_scored_ = 0;
  ResponseTotals totals_;
};

/// {"type":"stop","matched":...}, {"type":"length","length":n}, {"type":"abort",...} or null.
json::value to_json(const std::optional<FinishReason>& finish, std::int64_t num_output);

}  // namespace slime::engine
