#include "engine/chat/prompt_requests.h"

#include <fmt/format.h>

#include "core/error.h"
#include "engine/http/api_error.h"
#include "engine/http/generate_request.h"
#include "engine/sampling_params.h"

namespace slime::engine {
namespace {

using Limits = RequestLimits;

void check_size(const std::vector<std::vector<TokenId>>& prompts, std::size_t n) {
  std::size_t num_tokens = 0;
  for (const auto& prompt : prompts) num_tokens += prompt.size();
  if (prompts.size() * n > static_cast<std::size_t>(Limits::kMaxBatch) ||
      num_tokens * n > Limits::kMaxTotalTokens) {
    throw ConfigError(fmt::format("n times the prompts must be at most {} requests and {} tokens",
                                  Limits::kMaxBatch, Limits::kMaxTotalTokens));
  }
}

}  // namespace

std::vector<GenerateRequest> make_requests(const ServedModel& model, const GenerateRequest& shared,
                                           const std::vector<std::vector<TokenId>>& prompts,
                                           std::size_t n, std::optional<int64_t> max_tokens) {
  check_size(prompts, n);
  std::vector<GenerateRequest> requests;
  const bool is_single = prompts.size() * n == 1;
  for (const std::vector<TokenId>& prompt : prompts) {
    const auto length = static_cast<int64_t>(prompt.size());
    if (length == 0) throw ConfigError("the prompt is empty: there is nothing to continue");
    if (length >= model.context_length) throw context_length_exceeded(model.context_length, length);
    for (std::size_t copy = 0; copy < n; ++copy) {
      GenerateRequest request = shared;
      request.stream_interval = model.stream_interval;
      request.input_ids = prompt;
      request.sampling.max_new_tokens = max_tokens.value_or(model.context_length - length);
      if (request.sampling.sampling_seed) *request.sampling.sampling_seed += copy;
      if (request.rid.empty()) {
        request.rid = make_rid();
      } else if (!is_single) {
        request.rid += fmt::format("_{}", requests.size());
      }
      requests.push_back(std::move(request));
    }
    const auto problems =
        problems_of(requests.back().sampling, model.vocab_size, SamplingNames::kOpenAi);
    if (!problems.empty()) throw ConfigError(problems);
  }
  return requests;
}

}  // namespace slime::engine
