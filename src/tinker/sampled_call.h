#pragma once

/// A request for samples of one prompt: what the engine is asked, and the answer that its updates add up to.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/field_reader.h"
#include "engine/client.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::tinker {

/// Of asample, by the fields of the protocol. Beside those, `first_index`: sample i of a request with a seed
/// draws as sample first_index + i, by the rule of a run's samples.
struct SampleRequest {
  int64_t num_samples = 1;
  bool has_prompt_log_probs = false;
  bool wants_text = false;
  std::vector<engine::GenerateRequest> requests;  // num_samples of them
};

/// Throws ConfigError.
SampleRequest read_sample_request(const FieldReader& fields, int64_t vocab_size,
                                  int64_t max_request_tokens);

/// One class because the last update of the last sample makes the answer. Any thread.
class SampledCall {
 public:
  /// `tokenizer` outlives the object. `done`: called once, with the answer or the reason for none.
  using Done = std::function<void(json::object answer, const engine::FinishReason* failure)>;
  SampledCall(const SampleRequest& request, const text::Tokenizer& tokenizer, bool skips_special,
              Done done);

  void add(std::size_t sample, engine::GenerateUpdate update);

 private:
  struct Sequence {
    std::vector<TokenId> tokens;
    std::vector<float> log_probs;
    std::string stop_reason;
  };
  json::object answer() const;

  const text::Tokenizer& tokenizer_;
  const bool skips_special_;
  const bool has_prompt_log_probs_;
  const bool wants_text_;
  const Done done_;
  std::mutex mutex_;  // guards what follows
  std::vector<Sequence> sequences_;
  std::vector<std::optional<float>> prompt_log_probs_;
  std::size_t num_open_;
  bool has_failed_ = false;
};

}  // namespace slime::tinker
