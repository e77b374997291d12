#include "engine/http/openai_response.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/http/generate_response.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

/// JSON has no infinity: an impossible token has the lowest float.
json::value number_of(float log_prob) {
  if (std::isnan(log_prob)) return nullptr;
  if (std::isinf(log_prob)) return -static_cast<double>(std::numeric_limits<float>::max());
  return static_cast<double>(log_prob);
}

/// Of valid UTF-8.
std::size_t num_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

json::array bytes_of(std::string_view text) {
  json::array bytes;
  for (const char c : text)
    bytes.push_back(static_cast<std::int64_t>(static_cast<unsigned char>(c)));
  return bytes;
}

}  // namespace

OpenAiChoice::OpenAiChoice(const OpenAiCall& call, std::size_t index,
                           const text::Tokenizer& tokenizer)
    : form_(call),
      index_(index),
      tokenizer_(tokenizer),
      text_(call.requests[index].sampling, tokenizer),
      skips_special_tokens_(call.requests[index].sampling.skip_special_tokens),
      sent_(text_start()) {
  const std::size_t prompt = index / call.n;
  if (call.echoes) prompt_text_ = call.prompt_texts[prompt];
  if (call.returns_prompt_token_ids || call.echoes) prompt_ids_ = call.requests[index].input_ids;
}

void OpenAiChoice::add(const GenerateUpdate& update) {
  text_.add(update.output_ids, update.finish);
  ids_.insert(ids_.end(), update.output_ids.begin(), update.output_ids.end());
  log_probs_.insert(log_probs_.end(), update.output_log_probs.begin(),
                    update.output_log_probs.end());
  top_.insert(top_.end(), update.output_top.begin(), update.output_top.end());
  input_log_probs_.insert(input_log_probs_.end(), update.input_log_probs.begin(),
                          update.input_log_probs.end());
  input_top_.insert(input_top_.end(), update.input_top.begin(), update.input_top.end());
  last_.finish = update.finish;
  last_.prompt_tokens = update.prompt_tokens;
  last_.cached_tokens = update.cached_tokens;
  last_.num_retractions = update.num_retractions;
  last_.queue_seconds = update.queue_seconds;
  last_.total_seconds = update.total_seconds;
  if (!update.versions.empty()) last_.versions = {update.versions.back()};
}

std::string OpenAiChoice::token_text(TokenId id) const {
  return tokenizer_.decode(std::span(&id, 1), false);
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

OpenAiChoice::TextPosition OpenAiChoice::text_start() const {
  return TextPosition(tokenizer_, skips_special_tokens_);
}

json::value OpenAiChoice::logprobs(TextPosition& position) const {
  const std::size_t first = position.num_ids;
  json::value told;
  if (form_.returns_logprobs)
    told = form_.is_chat ? chat_logprobs(first) : completion_logprobs(position);
  position.num_ids = ids_.size();
  return told;
}

json::value OpenAiChoice::chat_logprobs(std::size_t first) const {
  const auto entry = [&](TokenId id, float log_prob) {
    return json::object{{"token", token_text(id)},
                        {"bytes", bytes_of(tokenizer_.token_bytes(id))},
                        {"logprob", number_of(log_prob)}};
  };
  json::array content;
  for (std::size_t i = first; i < std::min(ids_.size(), log_probs_.size()); ++i) {
    json::object token = entry(ids_[i], log_probs_[i]);
    json::array best;
    if (i < top_.size()) {
      for (const auto& [log_prob, id] : top_[i]) best.push_back(entry(id, log_prob));
    }
    token["top_logprobs"] = std::move(best);
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

/// Four parallel lists; with echo the prompt's tokens come first. An offset is the number of
/// characters of the choice's text before the token, over all chunks of a stream.
json::value OpenAiChoice::completion_logprobs(TextPosition& position) const {
  json::array tokens, token_log_probs, best_of, offsets;
  const auto add = [&](TokenId id, std::size_t offset, const json::value& log_prob,
                       const std::vector<std::pair<float, TokenId>>* best) {
    tokens.emplace_back(token_text(id));
    token_log_probs.push_back(log_prob);
    offsets.push_back(offset);
    if (best == nullptr || best->empty()) {
      best_of.push_back(nullptr);
      return;
    }
    json::object table;
    for (const auto& [other_log_prob, other] : *best)
      table[token_text(other)] = number_of(other_log_prob);
    best_of.push_back(std::move(table));
  };
  if (form_.echoes && !position.has_prompt) {
    const std::vector<std::size_t> prompt_offsets = offsets_of_prompt();
    for (std::size_t i = 0; i < std::min(prompt_ids_.size(), input_log_probs_.size()); ++i) {
      add(prompt_ids_[i], prompt_offsets[i],
          input_log_probs_[i] ? number_of(*input_log_probs_[i]) : json::value(nullptr),
          i < input_top_.size() ? &input_top_[i] : nullptr);
    }
    position.has_prompt = true;
    position.text_offset = num_characters(prompt_text_);
  }
  for (std::size_t i = position.num_ids; i < std::min(ids_.size(), log_probs_.size()); ++i) {
    add(ids_[i], position.text_offset, number_of(log_probs_[i]),
        i < top_.size() ? &top_[i] : nullptr);
    position.text_offset += num_characters(position.decoder.push(ids_[i]));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(token_log_probs)},
          {"top_logprobs",
           form_.num_top_logprobs > 0 ? json::value(std::move(best_of)) : json::value(nullptr)},
          {"text_offset", std::move(offsets)}};
}

std::vector<std::size_t> OpenAiChoice::offsets_of_prompt() const {
  std::vector<std::size_t> offsets;
  text::StreamDetokenizer decoder(tokenizer_, false);
  std::size_t offset = 0;
  for (const TokenId id : prompt_ids_) {
    offsets.push_back(offset);
    offset += num_characters(decoder.push(id));
  }
  offset += num_characters(decoder.flush());
  // Tokens that the tokenizer puts in front, a BOS, are not part of the text that the client sent.
  const std::size_t length = num_characters(prompt_text_);
  const std::size_t in_front = offset - std::min(offset, length);
  for (std::size_t& start : offsets) start -= std::min(start, in_front);
  return offsets;
}

json::object OpenAiChoice::whole(const std::string& version_name) const {
  json::object choice{{"index", index_}};
  const std::string text = prompt_text_ + std::string(text_.visible());
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
  if (form_.returns_token_ids) choice["token_ids"] = json::value_from(ids_);
  if (form_.returns_prompt_token_ids) choice["prompt_token_ids"] = json::value_from(prompt_ids_);
  if (form_.returns_meta_info) {
    json::object meta{
        {"prompt_tokens", last_.prompt_tokens},       {"completion_tokens", ids_.size()},
        {"cached_tokens", last_.cached_tokens},       {"num_retractions", last_.num_retractions},
        {"queue_time", last_.queue_seconds},          {"e2e_latency", last_.total_seconds},
        {"weight_version", json::value(version_name)}};
    meta["finish_reason"] = to_json(last_.finish, num_output());
    if (form_.returns_logprobs) {
      json::array triples;
      for (std::size_t i = 0; i < std::min(ids_.size(), log_probs_.size()); ++i) {
        triples.push_back(json::array{number_of(log_probs_[i]), ids_[i], nullptr});
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
  const bool has_text = visible.size() > num_text_sent_;
  const bool has_logprobs = form_.returns_logprobs && ids_.size() > sent_.num_ids;
  const bool has_prompt = !prompt_text_.empty() && !is_prompt_sent_;
  const bool ends = last_.finish && !has_ended_;
  if (!has_text && !has_logprobs && !has_prompt && !ends) return std::nullopt;
  std::string text(visible.substr(num_text_sent_));
  if (has_prompt) text = prompt_text_ + text;
  is_prompt_sent_ = true;
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
        ids_.begin() + static_cast<std::ptrdiff_t>(sent_.num_ids), ids_.end()));
  }
  chunk["logprobs"] = logprobs(sent_);
  chunk["finish_reason"] = finish_word();
  chunk["matched_stop"] = matched_stop();
  num_text_sent_ = visible.size();
  has_ended_ = last_.finish.has_value();
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

json::object openai_error(std::string_view message, std::string_view type, int status) {
  return {{"object", "error"},
          {"message", message},
          {"type", type},
          {"param", nullptr},
          {"code", status}};
}

}  // namespace slime::engine
