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
/// Requests for samples that are not answered.
constexpr int64_t kMostOpenCalls = 8192;
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
    request = read_sample_request(fields, limits_.vocab_size, max_request_tokens());
  } catch (const ConfigError& error) {
    problem = error.what();  // the future's to say
  }
  const std::string key = seq_id ? fmt::format("{}/{}", session, *seq_id) : "";
  const auto known = [&]() -> std::optional<json::object> {
    const auto found = sampled_.find(key);
    if (found == sampled_.end()) return std::nullopt;
    return json::object{{"request_id", found->second.future},
                        {"sample_sequence_ids", found->second.sequence_ids}};
  };
  {
    const std::lock_guard lock(mutex_);
    if (auto accepted = known()) return *std::move(accepted);
  }
  const SharedSnapshot snapshot = snapshot_of(session);
  std::string future;
  json::array ids;
  {
    const std::lock_guard lock(mutex_);
    if (auto accepted = known()) return *std::move(accepted);
    hear(session.substr(0, session.find(':')));
    if (num_open_calls_ >= kMostOpenCalls)
      throw Refusal(429, fmt::format("{} requests for samples wait already", kMostOpenCalls));
    future = futures_.open(session.substr(0, session.find(':')));
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
  ++num_open_calls_;
  const auto call = std::make_shared<SampledCall>(
      *request, *text_.tokenizer, config_.rollout_skip_special_tokens.get(),
      [this, future](SampleAnswer answer, const engine::FinishReason* failure) {
        --num_open_calls_;
        if (failure != nullptr) {
          futures_.fail(future, failure->message, blame_of(*failure));
        } else {
          futures_.answer(future, std::move(answer));
        }
      });
  for (std::size_t i = 0; i < request->requests.size(); ++i) {
    request->requests[i].rid = engine::make_rid();
    sample(snapshot, std::move(request->requests[i]),
           [call, i](engine::GenerateUpdate update) { call->add(i, std::move(update)); });
  }
  return accepted;
}

void Service::sample(const SharedSnapshot& snapshot, engine::GenerateRequest request,
                     engine::EngineClient::OnUpdate on_update) {
  if (snapshot->network == nullptr) {
    adapter_sampler_->sample(snapshot, std::move(request), std::move(on_update));
  } else {
    whole_sampler(snapshot).sample(snapshot, std::move(request), std::move(on_update));
  }
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
