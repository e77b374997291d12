#include "engine/admission.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/sampler.h"
#include "engine/sampling_params.h"
#include "engine/served_adapters.h"
#include "kernels/cpu/paged_attention.h"

namespace slime::engine {

using Cause = FinishReason::Cause;

void refuse(const Submission& submission, FinishReason reason) {
  GenerateUpdate update;
  update.rid = submission.request.rid;
  update.prompt_tokens = static_cast<int64_t>(submission.request.input_ids.size());
  update.finish = std::move(reason);
  submission.on_update(std::move(update));
}

FinishReason queue_is_full(const EngineConfig& config) {
  return aborted(Cause::kQueueFull, fmt::format("the queue is full ({} requests); try again later",
                                                config.max_queued_requests));
}

namespace {

/// The longest request whose pages are there.
int64_t most_request_tokens(const EngineConfig& config, int64_t num_pages,
                            const PageWindow& window) {
  int64_t fits = 0, beyond = config.context_length + 1;
  while (beyond - fits > 1) {
    const int64_t length = fits + (beyond - fits) / 2;
    const bool is_there =
        window.most_pages(length, config.max_prefill_tokens, kernels::kPageTokens) <= num_pages;
    (is_there ? fits : beyond) = length;
  }
  return fits;
}

}  // namespace

Admission::Admission(const EngineConfig& config, model::Network& network, int64_t num_pages)
    : config_(config),
      vocab_size_(network.config().vocab_size),
      max_request_tokens_(most_request_tokens(config, num_pages, page_window(config, network))),
      takes_media_(network.media_source() != nullptr) {}

std::vector<std::string> Admission::problems_with(const GenerateRequest& request) const {
  const auto prompt_length = static_cast<int64_t>(request.input_ids.size());
  std::vector<std::string> problems = problems_of(request.sampling, vocab_size_);
  if (prompt_length == 0) problems.emplace_back("input_ids is empty");
  if (forbids_every_token(request.sampling, config_.eos_token_ids, vocab_size_)) {
    problems.push_back(
        fmt::format("min_new_tokens is {}, and every one of the {} ids ends the response before "
                    "(stop_token_ids): no token can be sampled",
                    request.sampling.min_new_tokens, vocab_size_));
  }
  const auto outside = std::find_if(request.input_ids.begin(), request.input_ids.end(),
                                    [&](TokenId id) { return id < 0 || id >= vocab_size_; });
  if (outside != request.input_ids.end()) {
    problems.push_back(
        fmt::format("input_ids holds {}; the vocabulary has {} ids", *outside, vocab_size_));
  }
  if (!request.media.empty() && !takes_media_)
    problems.emplace_back("the prompt has attachments, and this model takes text alone");
  if (std::string problem = problem_of(request.media, prompt_length); !problem.empty())
    problems.push_back(std::move(problem));
  if (request.num_sampled < 0 || request.num_sampled > prompt_length) {
    problems.push_back(
        fmt::format("num_sampled is {}, of {} input_ids", request.num_sampled, prompt_length));
  }
  const bool draws = request.sampling.max_new_tokens > 0;
  if (prompt_length + (draws ? 1 : 0) > max_request_tokens_) {
    problems.push_back(fmt::format(
        "the prompt has {} tokens; prompt and response can have {} together ({})", prompt_length,
        max_request_tokens_,
        max_request_tokens_ == config_.context_length ? "context length" : "size of the KV cache"));
  }
  if (!request.sampling.stop.empty() && !config_.token_bytes) {
    problems.emplace_back(
        "stop strings need a tokenizer, and this engine has none; use stop_token_ids");
  }
  if (request.top_logprobs_num < 0 || request.top_logprobs_num > vocab_size_) {
    problems.push_back(fmt::format("top_logprobs_num must be in [0, {}], got {}", vocab_size_,
                                   request.top_logprobs_num));
  }
  for (const TokenId id : request.token_ids_logprob) {
    if (id >= 0 && id < vocab_size_) continue;
    problems.push_back(
        fmt::format("token_ids_logprob holds {}; the vocabulary has {} ids", id, vocab_size_));
    break;
  }
  if (const auto grammars = grammars_of(request.sampling);
      !grammars.empty() && config_.constraints == nullptr) {
    const std::string& field = request.grammar_field;
    problems.push_back(
        fmt::format("{} asks for constrained decoding, which this engine does not do",
                    field.empty() ? fmt::format("{}", fmt::join(grammars, ", ")) : field));
  }
  if (request.return_free_logprobs && request.return_top_p_token_ids) {
    problems.emplace_back(
        "return_free_logprobs cannot be had with return_top_p_token_ids: log-probs are then among "
        "the kept ids");
  }
  if (request.return_top_p_log_probs && !request.return_top_p_token_ids)
    problems.emplace_back("return_top_p_log_probs needs return_top_p_token_ids");
  if (request.return_routed_experts && !config_.records_experts) {
    problems.emplace_back(
        config_.verify_tokens > 0
            ? "return_routed_experts: an engine that verifies its tokens (--rollout-verify-tokens) "
              "records no choices of experts, because the trainer makes the same; leave it out"
            : "return_routed_experts needs an engine that records them (slime serve "
              "--enable-return-routed-experts, slime train --use-rollout-routing-replay)");
  }
  if (request.routed_experts_start_len < 0 || request.routed_experts_start_len > prompt_length) {
    problems.push_back(fmt::format("routed_experts_start_len is {}, of {} input_ids",
                                   request.routed_experts_start_len, prompt_length));
  }
  return problems;
}

int64_t Admission::num_in_line(const Scheduler& scheduler) const {
  const int64_t room = has_line_ ? 0 : config_.max_running_requests - scheduler.num_running();
  return scheduler.num_waiting() - std::min(scheduler.num_waiting(), std::max<int64_t>(room, 0));
}

void Admission::admit(Submission submission, Scheduler& scheduler) {
  GenerateRequest& client = submission.request;
  const uint64_t ordinal = num_submitted_++;
  if (client.rid.empty()) client.rid = fmt::format("request-{}", ordinal);
  std::vector<std::string> problems = problems_with(client);
  if (scheduler.find(client.rid) != nullptr)
    problems.push_back(fmt::format("rid {} is already running", client.rid));
  std::shared_ptr<const LoadedAdapter> adapter = std::move(client.adapter_version);
  if (adapter == nullptr && !client.adapter.empty()) {
    if (config_.adapters != nullptr) adapter = config_.adapters->find(client.adapter);
    if (adapter == nullptr) {
      problems.push_back(
          fmt::format("no adapter {} is loaded; there are: {}", client.adapter,
                      config_.adapters == nullptr ? "none" : config_.adapters->names()));
    }
  }
  if (!problems.empty()) {
    return refuse(submission,
                  aborted(Cause::kBadRequest, fmt::format("{}", fmt::join(problems, "; "))));
  }
  if (num_in_line(scheduler) >= config_.max_queued_requests)
    return refuse(submission, queue_is_full(config_));
  auto request = std::make_unique<Request>();
  request->handle = submission.handle;
  request->client = std::move(client);
  request->adapter = std::move(adapter);
  request->on_update = std::move(submission.on_update);
  request->submitted = submission.submitted;
  const SamplingParams& sampling = request->client.sampling;
  request->seed = sampling.sampling_seed.value_or(config_.seed);
  request->stream = sampling.sampling_seed.has_value() ? 0 : ordinal + 1;
  request->prompt_length = static_cast<int64_t>(request->client.input_ids.size());
  request->max_tokens =
      request->prompt_length +
      std::min(sampling.max_new_tokens, max_request_tokens_ - request->prompt_length);
  request->num_routed = request->client.routed_experts_start_len;
  request->tokens = request->client.input_ids;
  request->tokens.reserve(request->max_tokens);
  request->stop =
      std::make_unique<StopChecker>(sampling, config_.eos_token_ids, config_.token_bytes);
  const auto sampled = std::span(request->tokens).last(request->client.num_sampled);
  request->stop->recall(sampled);
  request->constraint = std::move(submission.constraint);
  if (request->constraint)
    for (const TokenId id : sampled) request->constraint->accept(id);
  if (has_penalties(sampling))
    for (const TokenId id : sampled) ++request->output_counts[id];
  scheduler.add(std::move(request));
}

}  // namespace slime::engine
