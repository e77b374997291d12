#include "engine/http/chat_completions_answer.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "engine/http/abort_status.h"
#include "engine/http/generate_request.h"
#include "engine/http/openai_logprobs.h"

namespace slime::engine {
namespace {

using Event = text::MessageEvent;
using Kind = Event::Kind;

json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

/// Neighbours that are deltas of one text.
bool continues(const Event& earlier, const Event& event) {
  const bool is_delta = event.kind == Kind::kReasoning || event.kind == Kind::kContent ||
                        event.kind == Kind::kArguments;
  return is_delta && earlier.kind == event.kind && earlier.call == event.call;
}

json::value ids_of(std::span<const TokenId> ids) {
  return json::value_from(std::vector<TokenId>(ids.begin(), ids.end()));
}

}  // namespace

ChatCompletionsChoice::ChatCompletionsChoice(const ChatCall& call, std::size_t index,
                                             const OpenAiForm& form)
    : form_(form),
      reading_(call.reading),
      index_(index),
      choice_(call.reading, call.requests[index]),
      stop_token_ids_(call.requests[index].sampling.stop_token_ids) {}

void ChatCompletionsChoice::add(const GenerateUpdate& update) {
  for (Event& event : choice_.add(update)) {
    if (!form_.streams) continue;
    if (!new_events_.empty() && continues(new_events_.back(), event)) {
      new_events_.back().text += event.text;
    } else {
      new_events_.push_back(std::move(event));
    }
  }
}

ChoiceFacts ChatCompletionsChoice::facts() const {
  return {choice_.tokens(), choice_.last_update(), choice_.versions()};
}

json::value ChatCompletionsChoice::logprobs(std::size_t first) const {
  if (!form_.returns_logprobs) return nullptr;
  return chat_logprobs(
      choice_.tokens(), first,
      {.num_top = form_.num_top_logprobs, .writes_ids = form_.writes_tokens_as_ids},
      *reading_->model->tokenizer);
}

json::object ChatCompletionsChoice::call_of(const text::ToolCall& call) const {
  if (!reading_->tools.is_custom(call.name)) {
    return {{"id", call.id},
            {"type", "function"},
            {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
  }
  CustomInput input;
  std::string text = input.add(call.arguments);
  text += input.finish();
  return {{"id", call.id},
          {"type", "custom"},
          {"custom", {{"name", call.name}, {"input", std::move(text)}}}};
}

json::object ChatCompletionsChoice::message() const {
  const text::Message& parts = choice_.message();
  const bool has_content =
      !parts.content.empty() || (parts.calls.empty() && parts.reasoning.empty());
  json::object message{{"role", "assistant"},
                       {"content", has_content ? json::value(parts.content) : json::value()},
                       {"refusal", nullptr}};
  const json::value thoughts =
      form_.includes_reasoning ? text_or_null(parts.reasoning) : json::value();
  message["reasoning_content"] = thoughts;
  if (reading_->model->names_reasoning_twice) message["reasoning"] = thoughts;
  json::array calls;
  for (const text::ToolCall& call : parts.calls) calls.push_back(call_of(call));
  message["tool_calls"] = calls.empty() ? json::value(nullptr) : json::value(std::move(calls));
  return message;
}

json::object ChatCompletionsChoice::whole(const VersionNamer& namer) const {
  const ChoiceFacts facts = this->facts();
  json::object choice{{"index", index_}, {"message", message()}, {"logprobs", logprobs(0)}};
  choice["finish_reason"] = choice_.finish_word();
  const bool has_calls = choice_.finish_word() == "tool_calls";
  choice["matched_stop"] = has_calls ? json::value() : matched_stop(choice_.finish());
  choice["stop_reason"] =
      has_calls ? json::value() : stop_reason(choice_.finish(), stop_token_ids_);
  if (form_.returns_token_ids) choice["token_ids"] = ids_of(facts.tokens.ids);
  if (form_.returns_weight_versions) choice["weight_versions"] = weight_versions(facts, namer);
  if (form_.returns_meta_info) {
    json::object meta = meta_info(facts, form_, namer.name(facts.last_version(namer)));
    meta["tool_call_errors"] = choice_.num_call_errors();
    choice["meta_info"] = std::move(meta);
  }
  return choice;
}

json::object ChatCompletionsChoice::chunk_of(json::object delta) const {
  return {{"index", index_},
          {"delta", std::move(delta)},
          {"logprobs", nullptr},
          {"finish_reason", nullptr},
          {"matched_stop", nullptr}};
}

json::object ChatCompletionsChoice::first_chunk() const {
  return chunk_of({{"role", "assistant"}, {"content", ""}});
}

bool ChatCompletionsChoice::add_delta(const Event& event, json::object& delta) {
  const auto call = [&](json::object members) {
    members["index"] = event.call;
    delta["tool_calls"] = json::array{std::move(members)};
  };
  switch (event.kind) {
    case Kind::kReasoning:
      if (!form_.includes_reasoning) return false;
      delta["reasoning_content"] = event.text;
      if (reading_->model->names_reasoning_twice) delta["reasoning"] = event.text;
      return true;
    case Kind::kContent:
      delta["content"] = event.text;
      return true;
    case Kind::kCall:
      if (reading_->tools.is_custom(event.name)) {
        custom_inputs_.emplace(event.call, CustomInput());
        call({{"id", event.id},
              {"type", "custom"},
              {"custom", {{"name", event.name}, {"input", ""}}}});
      } else {
        call({{"id", event.id},
              {"type", "function"},
              {"function", {{"name", event.name}, {"arguments", ""}}}});
      }
      return true;
    case Kind::kArguments:
    case Kind::kCallEnd: {
      const auto custom = custom_inputs_.find(event.call);
      const bool is_end = event.kind == Kind::kCallEnd;
      if (custom == custom_inputs_.end()) {
        if (is_end) return false;
        call({{"function", {{"arguments", event.text}}}});
        return true;
      }
      std::string text = is_end ? custom->second.finish() : custom->second.add(event.text);
      if (text.empty()) return false;
      call({{"custom", {{"input", std::move(text)}}}});
      return true;
    }
  }
  return false;
}

/// Tokens since the last chunk, and their log-probs.
void ChatCompletionsChoice::add_tokens(json::object& chunk) {
  const std::vector<TokenId>& ids = choice_.tokens().ids;
  if (form_.returns_token_ids)
    chunk["token_ids"] = ids_of(std::span(ids).subspan(num_sent_tokens_));
  if (ids.size() > num_sent_tokens_) chunk["logprobs"] = logprobs(num_sent_tokens_);
  num_sent_tokens_ = ids.size();
}

std::vector<json::object> ChatCompletionsChoice::next_chunks() {
  std::vector<json::object> chunks;
  for (const Event& event : std::exchange(new_events_, {})) {
    json::object delta;
    if (!add_delta(event, delta)) continue;
    chunks.push_back(chunk_of(std::move(delta)));
    add_tokens(chunks.back());
  }
  const bool ends = choice_.finish() && !std::exchange(has_ended_, choice_.finish().has_value());
  const bool tells_tokens = form_.returns_logprobs || form_.returns_token_ids;
  const bool has_tokens = choice_.tokens().ids.size() > num_sent_tokens_;
  if (!ends && !(tells_tokens && has_tokens)) return chunks;
  json::object last = chunk_of({});
  add_tokens(last);
  if (ends) {
    last["finish_reason"] = choice_.finish_word();
    if (choice_.finish_word() != "tool_calls") {
      last["matched_stop"] = matched_stop(choice_.finish());
      last["stop_reason"] = stop_reason(choice_.finish(), stop_token_ids_);
    }
  }
  chunks.push_back(std::move(last));
  return chunks;
}

namespace {

class ChatAnswer final : public OpenAiAnswer {
 public:
  ChatAnswer(const ChatCompletionsCall& call, VersionNamer namer)
      : form_(call.form),
        model_(*call.chat.reading->model),
        namer_(std::move(namer)),
        id_("chatcmpl-" + make_rid()),
        created_(std::time(nullptr)),
        is_stopped_(call.chat.requests.size()) {
    if (form_.returns_prompt_token_ids || form_.returns_token_ids || form_.num_prompt_logprobs)
      prompt_ids_ = call.chat.prompt_ids;
    choices_.reserve(call.chat.requests.size());
    for (std::size_t i = 0; i < call.chat.requests.size(); ++i)
      choices_.emplace_back(call.chat, i, form_);
  }

  void add(std::size_t choice, const GenerateUpdate& update) override {
    choices_[choice].add(update);
  }

  const FinishReason* failure() const override {
    for (const ChatCompletionsChoice& each : choices_) {
      if (is_http_error(each.choice().finish())) return &*each.choice().finish();
    }
    return nullptr;
  }

  std::vector<const ChatChoice*> chat_choices() const override {
    std::vector<const ChatChoice*> choices;
    for (const ChatCompletionsChoice& each : choices_) choices.push_back(&each.choice());
    return choices;
  }

  std::vector<std::size_t> take_stops() override {
    std::vector<std::size_t> stops;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const ChatChoice& choice = choices_[i].choice();
      if (is_stopped_[i] || !choice.wants_stop() || choice.finish()) continue;
      is_stopped_[i] = true;
      stops.push_back(i);
    }
    return stops;
  }

  json::object whole() const override {
    json::object body = envelope("chat.completion");
    WeightVersion newest = 0;
    json::array choices;
    for (const ChatCompletionsChoice& each : choices_) {
      newest = std::max(newest, each.facts().last_version(namer_));
      json::object choice = each.whole(namer_);
      if (form_.returns_prompt_token_ids)
        choice["prompt_token_ids"] = json::value_from(prompt_ids_);
      choices.push_back(std::move(choice));
    }
    body["choices"] = std::move(choices);
    body["usage"] = usage().to_json();
    add_prompt(body);
    body["metadata"] = {{"weight_version", namer_.name(newest)}};
    return body;
  }

  std::vector<std::string> first_chunks() override {
    std::vector<std::string> chunks;
    for (const ChatCompletionsChoice& each : choices_)
      chunks.push_back(chunk(json::array{each.first_chunk()}, nullptr, chunks.empty()));
    return chunks;
  }

  std::vector<std::string> next_chunks() override {
    std::vector<std::string> chunks;
    for (ChatCompletionsChoice& each : choices_) {
      for (json::object& part : each.next_chunks()) {
        const bool has_usage = form_.includes_usage_always;
        chunks.push_back(chunk(json::array{std::move(part)},
                               has_usage ? json::value(usage().to_json()) : json::value(nullptr)));
      }
    }
    return chunks;
  }

  std::optional<std::string> usage_chunk() const override {
    if (!form_.includes_usage) return std::nullopt;
    return chunk({}, usage().to_json());
  }

 private:
  json::object envelope(const char* kind) const {
    return {{"id", id_}, {"object", kind}, {"created", created_}, {"model", form_.model}};
  }

  std::string chunk(json::array choices, json::value usage, bool is_first = false) const {
    json::object body = envelope("chat.completion.chunk");
    body["choices"] = std::move(choices);
    if (form_.includes_usage || form_.includes_usage_always) body["usage"] = std::move(usage);
    if (is_first && form_.returns_token_ids)
      body["prompt_token_ids"] = json::value_from(prompt_ids_);
    return json_text(body);
  }

  void add_prompt(json::object& body) const {
    if (form_.returns_token_ids || form_.returns_prompt_token_ids)
      body["prompt_token_ids"] = json::value_from(prompt_ids_);
    if (form_.num_prompt_logprobs) {
      body["prompt_logprobs"] = prompt_logprobs(prompt_ids_, choices_.front().choice().tokens(),
                                                *form_.num_prompt_logprobs, *model_.tokenizer);
    }
  }

  UsageTotals usage() const {
    UsageTotals totals;
    for (const ChatCompletionsChoice& each : choices_) {
      totals.completion += static_cast<std::int64_t>(each.choice().tokens().ids.size());
      totals.reasoning += each.choice().num_reasoning_tokens();
    }
    totals.prompt = choices_.front().choice().last_update().prompt_tokens;
    totals.cached = choices_.front().choice().last_update().cached_tokens;
    return totals;
  }

  const OpenAiForm& form_;
  const ServedModel& model_;
  const VersionNamer namer_;
  const std::string id_;
  const std::int64_t created_;
  std::vector<bool> is_stopped_;
  std::vector<TokenId> prompt_ids_;  // only when something of it is returned
  std::vector<ChatCompletionsChoice> choices_;
};

}  // namespace

std::unique_ptr<OpenAiAnswer> make_chat_answer(const ChatCompletionsCall& call,
                                               VersionNamer namer) {
  return std::make_unique<ChatAnswer>(call, std::move(namer));
}

}  // namespace slime::engine
