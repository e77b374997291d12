/// The requests of the service that sample, and those that turn text into tokens.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "core/calendar.h"
#include "core/clock.h"
#include "core/error.h"
#include "engine/http/generate_request.h"
#include "tinker/sampled_call.h"
#include "tinker/service.h"

namespace slime::tinker {
namespace {

/// Requests whose answers a repeated one gets.
constexpr std::size_t kKeptCalls = 8192;
constexpr std::size_t kMostTexts = 65536;

Blame blame_of(const engine::FinishReason& failure) {
  return failure.cause == engine::FinishReason::Cause::kBadRequest ? Blame::kUser : Blame::kServer;
}

}  // namespace

void Service::forget_old_samples() {
  while (sampled_order_.size() > kKeptCalls) {
    sampled_.erase(sampled_order_.front());
    sampled_order_.pop_front();
  }
}

json::object Service::asample(const json::object& body) {
  const FieldReader fields(body, "");
  const std::string session = fields.required().text("sampling_session_id", 256).value_or("");
  const auto seq_id = fields.integer("seq_id");
  std::optional<SampleRequest> request;
  std::string problem;
  try {
    request =
        read_sample_request(fields, model_.limits().vocab_size, sampler_->max_request_tokens());
  } catch (const ConfigError& error) {
    problem = error.what();  // the future's to say
  }
  std::string future;
  SharedSnapshot snapshot;
  json::array ids;
  {
    const std::lock_guard lock(mutex_);
    const std::string key = seq_id ? fmt::format("{}/{}", session, *seq_id) : "";
    if (const auto known = sampled_.find(key); seq_id && known != sampled_.end())
      return {{"request_id", known->second.future},
              {"sample_sequence_ids", known->second.sequence_ids}};
    snapshot = snapshot_of(session);
    future = futures_.open();
    const int64_t count = request ? request->num_samples : 1;
    for (int64_t i = 0; i < count; ++i)
      ids.push_back(json::value(fmt::format("sequence-{}", ++num_sequences_)));
    if (seq_id) {
      sampled_[key] = {future, ids};
      sampled_order_.push_back(key);
      forget_old_samples();
    }
  }
  json::object accepted{{"request_id", future}, {"sample_sequence_ids", ids}};
  if (!request) {
    futures_.fail(future, problem, Blame::kUser);
    return accepted;
  }
  const auto call = std::make_shared<SampledCall>(
      *request, *text_.tokenizer, config_.rollout_skip_special_tokens.get(),
      [this, future](json::object answer, const engine::FinishReason* failure) {
        if (failure != nullptr) {
          futures_.fail(future, failure->message, blame_of(*failure));
        } else {
          futures_.answer(future, answer);
        }
      });
  for (std::size_t i = 0; i < request->requests.size(); ++i) {
    request->requests[i].rid = engine::make_rid();
    sampler_->sample(snapshot, std::move(request->requests[i]),
                     [call, i](engine::GenerateUpdate update) { call->add(i, std::move(update)); });
  }
  return accepted;
}

json::object Service::encode(const json::object& body) {
  const FieldReader fields(body, "");
  json::array tokens, texts;
  const auto add = [&](const std::string& text) {
    tokens.push_back(json::value_from(text_.tokenizer->encode(text)));
    texts.push_back(json::value(text));
    if (tokens.size() > kMostTexts)
      throw ConfigError(fmt::format("more than {} texts", kMostTexts));
  };
  for (const std::string& text : fields.strings("texts")) add(text);
  if (const json::array* conversations = fields.array("conversations")) {
    if (!chat_) throw ConfigError("conversations: " + no_chat_);
    json::object given{{"add_generation_prompt", true}};
    if (const json::object* more = fields.object("options")) {
      for (const auto& [name, value] : *more) given[name] = value;
    }
    auto options = text::to_chat_options(given);
    if (!options) throw ConfigError("options: " + options.error().message);
    options->now = text_.today;
    for (std::size_t i = 0; i < conversations->size(); ++i) {
      const json::array* messages = (*conversations)[i].if_array();
      if (messages == nullptr)
        throw ConfigError(fmt::format("conversations[{}]: should be a list of messages", i));
      const auto rendered = chat_->render(*messages, *options);
      if (!rendered)
        throw ConfigError(fmt::format("conversations[{}]: {}", i, rendered.error().message));
      add(*rendered);
    }
  }
  return {{"tokens", std::move(tokens)}, {"texts", std::move(texts)}};
}

json::object Service::decode(const json::object& body) {
  const FieldReader fields(body, "");
  const bool skips =
      fields.boolean("skip_special_tokens").value_or(config_.rollout_skip_special_tokens.get());
  json::array texts;
  const json::array* lists = fields.required().array("tokens");
  for (std::size_t i = 0; i < lists->size(); ++i) {
    texts.push_back(json::value(text_.tokenizer->decode(
        fields.token_ids((*lists)[i], fmt::format("tokens[{}]", i), int64_t{1} << 31), skips)));
  }
  return {{"texts", std::move(texts)}};
}

}  // namespace slime::tinker
