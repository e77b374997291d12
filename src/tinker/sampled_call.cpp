#include "tinker/sampled_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/splitmix64.h"
#include "tinker/training_body.h"

namespace slime::tinker {
namespace {

constexpr int64_t kMostSamples = 4096;
constexpr int64_t kMostTop = 128;

/// `stop`: null, end tokens; a list, these and no end tokens.
void read_stop(const FieldReader& fields, engine::SamplingParams& sampling) {
  const json::value* stop = fields.find("stop");
  if (stop == nullptr) return;
  sampling.ignore_eos = true;
  const auto add = [&](const json::value& each) {
    if (each.is_string()) {
      if (each.get_string().empty()) throw ConfigError("sampling_params.stop: an empty string");
      sampling.stop.emplace_back(each.get_string());
    } else if (const auto id = whole_number(each)) {
      sampling.stop_token_ids.push_back(static_cast<TokenId>(*id));
    } else {
      throw ConfigError("sampling_params.stop: strings and token ids, not " + shown(each));
    }
  };
  if (const json::array* several = stop->if_array()) {
    for (const json::value& each : *several) add(each);
  } else {
    add(*stop);
  }
}

void refuse_what_is_not_here(const FieldReader& fields) {
  for (const char* name :
       {"prompt_alt_tokens_k", "target_prompt_logprobs", "prompt_logprobs_last_n"})
    fields.refuse(name,
                  "is not here: log-probs are those of all tokens of the prompt and of the most "
                  "probable ones");
}

}  // namespace

SampleRequest read_sample_request(const FieldReader& fields, int64_t vocab_size,
                                  int64_t max_request_tokens) {
  SampleRequest made;
  refuse_what_is_not_here(fields);
  made.num_samples = fields.integer("num_samples", 1, kMostSamples).value_or(1);
  made.has_prompt_log_probs = fields.boolean("prompt_logprobs").value_or(false);
  made.num_prompt_top = fields.integer("topk_prompt_logprobs", 0, kMostTop).value_or(0);
  made.num_top = fields.integer("topk_sample_logprobs", 0, kMostTop).value_or(0);
  made.wants_text = fields.boolean("wants_text").value_or(false);
  const auto prompt = fields.required().fields("prompt");
  engine::GenerateRequest request;
  request.input_ids = read_chunks(*prompt, vocab_size);
  if (request.input_ids.empty()) throw ConfigError("prompt: has no token");
  const auto length = static_cast<int64_t>(request.input_ids.size());
  engine::SamplingParams& sampling = request.sampling;
  sampling.max_new_tokens = std::max<int64_t>(0, max_request_tokens - length);
  std::optional<uint64_t> seed;
  if (const auto params = fields.fields("sampling_params")) {
    sampling.max_new_tokens = params->integer("max_tokens", 0).value_or(sampling.max_new_tokens);
    sampling.temperature = params->number("temperature", 0, 1e6).value_or(1);
    sampling.top_p = params->number("top_p", 0, 1).value_or(1);
    sampling.top_k = params->integer("top_k", -1).value_or(-1);
    if (sampling.top_k == 0) sampling.top_k = -1;
    if (sampling.top_p == 0) throw ConfigError("sampling_params.top_p: should be above 0");
    if (const auto given = params->integer("seed")) seed = static_cast<uint64_t>(*given);
    read_stop(*params, sampling);
  }
  if (length + sampling.max_new_tokens > max_request_tokens) {
    throw ConfigError(
        fmt::format("prompt of {} tokens and sampling_params.max_tokens {}: together "
                    "more than the {} of this server",
                    length, sampling.max_new_tokens, max_request_tokens));
  }
  sampling.no_stop_trim = true;
  request.return_logprob = true;
  request.stream_interval = 0;
  const int64_t first = fields.integer("first_index", 0).value_or(0);
  for (int64_t i = 0; i < made.num_samples; ++i) {
    if (seed)
      request.sampling.sampling_seed =
          splitmix64(*seed + static_cast<uint64_t>(first + i) * kGoldenRatio64);
    const bool scores_prompt = made.has_prompt_log_probs || made.num_prompt_top > 0;
    request.logprob_start_len = scores_prompt && i == 0 ? 0 : -1;
    request.top_logprobs_num = i == 0 ? std::max(made.num_top, made.num_prompt_top) : made.num_top;
    made.requests.push_back(request);
  }
  return made;
}

SampledCall::SampledCall(const SampleRequest& request, const text::Tokenizer& tokenizer,
                         bool skips_special, Done done)
    : tokenizer_(tokenizer),
      skips_special_(skips_special),
      wants_text_(request.wants_text),
      done_(std::move(done)),
      num_open_(request.requests.size()) {
  answer_.sequences.resize(request.requests.size());
  answer_.num_top = request.num_top;
  answer_.num_prompt_top = request.num_prompt_top;
  if (request.has_prompt_log_probs) answer_.prompt_log_probs.emplace();
}

namespace {

void append(TopTokens& to, engine::TopLogProbs from, int64_t most) {
  for (auto& position : from) {
    if (static_cast<int64_t>(position.size()) > most)
      position.resize(static_cast<std::size_t>(most));
    to.push_back(std::move(position));
  }
}

}  // namespace

void SampledCall::add(std::size_t sample, engine::GenerateUpdate update) {
  std::optional<SampleAnswer> made;
  std::optional<engine::FinishReason> failure;
  {
    const std::lock_guard lock(mutex_);
    SampleAnswer::Sequence& sequence = answer_.sequences[sample];
    sequence.tokens.insert(sequence.tokens.end(), update.output_ids.begin(),
                           update.output_ids.end());
    sequence.log_probs.insert(sequence.log_probs.end(), update.output_log_probs.begin(),
                              update.output_log_probs.end());
    if (answer_.num_top > 0) append(sequence.top, std::move(update.output_top), answer_.num_top);
    if (sample == 0) {
      if (answer_.prompt_log_probs && !update.input_log_probs.empty())
        answer_.prompt_log_probs = std::move(update.input_log_probs);
      if (answer_.num_prompt_top > 0)
        append(answer_.prompt_top, std::move(update.input_top), answer_.num_prompt_top);
      answer_.num_cached_tokens = std::max(answer_.num_cached_tokens, update.cached_tokens);
    }
    if (!update.finish) return;
    using Kind = engine::FinishReason::Kind;
    --num_open_;
    sequence.is_stopped = update.finish->kind == Kind::kStop;
    if (wants_text_) sequence.text = tokenizer_.decode(sequence.tokens, skips_special_);
    if (update.finish->kind == Kind::kAbort) {
      if (std::exchange(has_failed_, true)) return;
      failure = std::move(update.finish);
    } else if (num_open_ == 0 && !has_failed_) {
      made = std::move(answer_);
    } else {
      return;
    }
  }
  if (failure) {
    done_({}, &*failure);
  } else {
    done_(*std::move(made), nullptr);
  }
}

}  // namespace slime::tinker
