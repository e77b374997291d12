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
#include <string>

#include "engine/client.h"
#include "engine/http/output_text.h"

namespace slime::engine {

struct ResponseForm {
  bool returns_text_in_logprobs = false;
  bool returns_prompt_token_ids = false;
  bool is_incremental = false;  // each to_json() holds what is new since the one before
  /// The name of a weight version, SGLang's "weight_version"; unset: its number.
  std::function<std::string(WeightVersion)> name_version;
};

class GenerateResponse {
 public:
  /// The tokenizer outlives the object; without one the response has no text. `request` may be gone
  /// after the call.
  GenerateResponse(const GenerateRequest& request, const text::Tokenizer* tokenizer,
                   ResponseForm form);

  void add(const GenerateUpdate& update);

  bool is_finished() const { return finish_.has_value(); }
  const std::optional<FinishReason>& finish() const { return finish_; }

  /// The object. `index`, its place in a batch, is written when it is not negative.
  std::string to_json(std::int64_t index = -1);

 private:
  /// Elements of a JSON array, each followed by a comma.
  struct ArrayText {
    std::string text;
    std::size_t num_sent = 0;  // bytes, for incremental frames
  };

  void append_triple(std::string& out, std::optional<float> log_prob, TokenId id) const;
  void append_top(ArrayText& array, const std::vector<std::pair<float, TokenId>>& best) const;
  void append_array(std::string& out, std::string_view name, ArrayText& array) const;
  void append_meta(std::string& out);

  const text::Tokenizer* tokenizer_;
  ResponseForm form_;
  std::optional<OutputText> text_;
  std::string rid_;
  std::vector<TokenId> prompt_;  // only when something of it is returned
  bool returns_logprob_ = false;
  bool returns_top_ = false;
  std::int64_t logprob_start_ = -1;

  std::string escaped_text_;  // of the visible text, without quotes
  std::size_t num_escaped_ = 0;
  std::size_t num_escaped_sent_ = 0;
  ArrayText output_ids_, output_log_probs_, output_top_, input_log_probs_, input_top_;
  std::vector<TokenId> top_p_ids_;
  std::vector<std::int32_t> top_p_offsets_{0};
  bool returns_top_p_ids_ = false;

  std::int64_t num_output_ = 0;
  std::int64_t num_input_scored_ = 0;
  std::vector<VersionRun> versions_;
  std::optional<FinishReason> finish_;
  std::int64_t prompt_tokens_ = 0;
  std::int64_t cached_tokens_ = 0;
  std::int64_t num_retractions_ = 0;
  double queue_seconds_ = 0;
  double total_seconds_ = 0;
};

/// {"type":"stop","matched":...}, {"type":"length","length":n}, {"type":"abort",...} or null.
json::value to_json(const std::optional<FinishReason>& finish, std::int64_t num_output);

/// A log-prob as JSON: shortest form that reads back as the same float32; minus infinity is the
/// lowest float32.
void append_log_prob(std::string& out, float log_prob);

}  // namespace slime::engine
