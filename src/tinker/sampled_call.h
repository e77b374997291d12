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
#include "tinker/answers.h"

namespace slime::tinker {

/// Of asample, by the fields of the protocol. Beside those, `first_index`: sample i of a request with a seed
/// draws as sample first_index + i, by the rule of a run's samples.
struct SampleRequest {
  int64_t num_samples = 1;
  bool has_prompt_log_probs = false;
  int64_t num_prompt_top = 0;  // most probable tokens of each position of the prompt
  int64_t num_top = 0;         // of each that is sampled
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
  using Done = std::function<void(SampleAnswer answer, const engine::FinishReason* failure)>;
  SampledCall(const SampleRequest& request, const text::Tokenizer& tokenizer, bool skips_special,
              Done done);

  void add(std::size_t sample, engine::GenerateUpdate update);

 private:
  const text::Tokenizer& tokenizer_;
  const bool skips_special_;
  const bool wants_text_;
  const Done done_;
  std::mutex mutex_;  // guards what follows
  SampleAnswer answer_;
  std::size_t num_open_;
  bool has_failed_ = false;
};

}  // namespace slime::tinker
