#include "engine/http/openai_response.h"

#include <algorithm>

#include "engine/http/generate_response.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {

OpenAiChoice::OpenAiChoice(const OpenAiCall& call, std::size_t index,
                           const text::Tokenizer& tokenizer)
    : form_(call),
      index_(index),
      tokenizer_(tokenizer),
      text_(call.requests[index].sampling, tokenizer),
      skips_special_tokens_(call.requests[index].sampling.skip_special_tokens),
      sent_{.log_probs = text_start()} {
  const std::size_t prompt = index / call.n;
  if (call.echoes) tokens_.prompt_text = call.prompt_texts[prompt];
  if (call.returns_prompt_token_ids || call.echoes)
    tokens_.prompt_ids = call.requests[index].input_ids;
}

void OpenAiChoice::add(const GenerateUpdate& update) {
  text_.add(update.output_ids, update.finish);
  tokens_.add(update);
  last_.finish = update.finish;
  last_.prompt_tokens = update.prompt_tokens;
  last_.cached_tokens = update.cached_tokens;
  last_.num_retractions = update.num_retractions;
  last_.queue_seconds = update.queue_seconds;
  last_.total_seconds = update.total_seconds;
  if (!update.versions.empty()) last_.versions = {update.versions.back()};
}

json::value OpenAiChoice::finish_word() const {
  if (!last_.finish) return nullptr;
  switch (last_.finish->kind) {
    case FinishReason::Kind::kStop:
      return "stop";
    case FinishReason::Kind::kLength:
      return "length";
    case FinishReason::Kind::kAbort:
      return "abort";
  }
  return nullptr;
}

json::value OpenAiChoice::matched_stop() const {
  if (!last_.finish) return nullptr;
  if (const auto* id = std::get_if<TokenId>(&last_.finish->matched)) return *id;
  if (const auto* text = std::get_if<std::string>(&last_.finish->matched))
    return json::value(*text);
  return nullptr;
}

TextPosition OpenAiChoice::text_start() const {
  return TextPosition(tokenizer_, skips_special_tokens_);
}

json::value OpenAiChoice::logprobs(TextPosition& position) const {
  json::value told;
  if (form_.returns_logprobs && form_.is_chat) {
    told = chat_logprobs(tokens_, position.num_ids, tokenizer_);
  } else if (form_.returns_logprobs) {
    told = completion_logprobs(tokens_, position,
                               {.echoes = form_.echoes, .has_top = form_.num_top_logprobs > 0},
                               tokenizer_);
  }
  position.num_ids = tokens_.ids.size();
  return told;
}

json::object OpenAiChoice::whole(const std::string& version_name) const {
  json::object choice{{"index", index_}};
  const std::string text = tokens_.prompt_text + std::string(text_.visible());
  if (form_.is_chat) {
    choice["message"] = {{"role", "assistant"},
                         {"content", text},
                         {"reasoning_content", nullptr},
                         {"tool_calls", nullptr}};
  } else {
    choice["text"] = text;
  }
  TextPosition start = text_start();
  choice["logprobs"] = logprobs(start);
  choice["finish_reason"] = finish_word();
  choice["matched_stop"] = matched_stop();
  if (form_.returns_token_ids) choice["token_ids"] = json::value_from(tokens_.ids);
  if (form_.returns_prompt_token_ids)
    choice["prompt_token_ids"] = json::value_from(tokens_.prompt_ids);
  if (form_.returns_meta_info) {
    json::object meta{
        {"prompt_tokens", last_.prompt_tokens},       {"completion_tokens", tokens_.ids.size()},
        {"cached_tokens", last_.cached_tokens},       {"num_retractions", last_.num_retractions},
        {"queue_time", last_.queue_seconds},          {"e2e_latency", last_.total_seconds},
        {"weight_version", json::value(version_name)}};
    meta["finish_reason"] = to_json(last_.finish, num_output());
    if (form_.returns_logprobs) {
      json::array triples;
      for (std::size_t i = 0; i < std::min(tokens_.ids.size(), tokens_.log_probs.size()); ++i) {
        triples.push_back(
            json::array{log_prob_number(tokens_.log_probs[i]), tokens_.ids[i], nullptr});
      }
      meta["output_token_logprobs"] = std::move(triples);
    }
    choice["meta_info"] = std::move(meta);
  }
  return choice;
}

json::object OpenAiChoice::first_chunk() const {
  return {{"index", index_},
          {"delta", {{"role", "assistant"}, {"content", ""}}},
          {"logprobs", nullptr},
          {"finish_reason", nullptr},
          {"matched_stop", nullptr}};
}

std::optional<json::object> OpenAiChoice::next_chunk() {
  const std::string_view visible = text_.visible();
  const bool has_text = visible.size() > sent_.num_text;
  const bool has_logprobs = form_.returns_logprobs && tokens_.ids.size() > sent_.log_probs.num_ids;
  const bool has_prompt = !tokens_.prompt_text.empty() && !sent_.has_prompt;
  const bool ends = last_.finish && !sent_.has_ended;
  if (!has_text && !has_logprobs && !has_prompt && !ends) return std::nullopt;
  std::string text(visible.substr(sent_.num_text));
  if (has_prompt) text = tokens_.prompt_text + text;
  sent_.has_prompt = true;
  json::object chunk{{"index", index_}};
  if (form_.is_chat) {
    json::object delta;
    if (!text.empty()) delta["content"] = text;
    chunk["delta"] = std::move(delta);
  } else {
    chunk["text"] = text;
  }
  if (form_.returns_token_ids) {
    chunk["token_ids"] = json::value_from(std::vector<TokenId>(
        tokens_.ids.begin() + static_cast<std::ptrdiff_t>(sent_.log_probs.num_ids),
        tokens_.ids.end()));
  }
  chunk["logprobs"] = logprobs(sent_.log_probs);
  chunk["finish_reason"] = finish_word();
  chunk["matched_stop"] = matched_stop();
  sent_.num_text = visible.size();
  sent_.has_ended = last_.finish.has_value();
  return chunk;
}

json::object usage_of(const OpenAiCall& call, const std::vector<OpenAiChoice>& choices) {
  std::int64_t prompt = 0, cached = 0, completion = 0;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    completion += choices[i].num_output();
    if (i % call.n != 0) continue;
    prompt += choices[i].last_update().prompt_tokens;
    cached += choices[i].last_update().cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

}  // namespace slime::engine
