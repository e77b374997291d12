#include "engine/http/openai_logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

namespace slime::engine {
namespace {

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

std::string token_text(const text::Tokenizer& tokenizer, TokenId id) {
  return tokenizer.decode(std::span(&id, 1), false);
}

std::vector<std::size_t> offsets_of_prompt(const ChoiceTokens& tokens,
                                           const text::Tokenizer& tokenizer) {
  std::vector<std::size_t> offsets;
  text::StreamDetokenizer decoder(tokenizer, false);
  std::size_t offset = 0;
  for (const TokenId id : tokens.prompt_ids) {
    offsets.push_back(offset);
    offset += num_characters(decoder.push(id));
  }
  offset += num_characters(decoder.flush());
  // Tokens that the tokenizer puts in front, a BOS, are not part of the text that the client sent.
  const std::size_t length = num_characters(tokens.prompt_text);
  const std::size_t in_front = offset - std::min(offset, length);
  for (std::size_t& start : offsets) start -= std::min(start, in_front);
  return offsets;
}

}  // namespace

void ChoiceTokens::add(const GenerateUpdate& update) {
  const auto append = [](auto& all, const auto& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  append(input_log_probs, update.input_log_probs);
  append(input_top, update.input_top);
  append(ids, update.output_ids);
  append(log_probs, update.output_log_probs);
  append(top, update.output_top);
}

json::value log_prob_number(float log_prob) {
  if (std::isnan(log_prob)) return nullptr;
  if (std::isinf(log_prob)) return -static_cast<double>(std::numeric_limits<float>::max());
  return static_cast<double>(log_prob);
}

json::value chat_logprobs(const ChoiceTokens& tokens, std::size_t first,
                          const text::Tokenizer& tokenizer) {
  const auto entry = [&](TokenId id, float log_prob) {
    return json::object{{"token", token_text(tokenizer, id)},
                        {"bytes", bytes_of(tokenizer.token_bytes(id))},
                        {"logprob", log_prob_number(log_prob)}};
  };
  json::array content;
  for (std::size_t i = first; i < std::min(tokens.ids.size(), tokens.log_probs.size()); ++i) {
    json::object token = entry(tokens.ids[i], tokens.log_probs[i]);
    json::array best;
    if (i < tokens.top.size()) {
      for (const auto& [log_prob, id] : tokens.top[i]) best.push_back(entry(id, log_prob));
    }
    token["top_logprobs"] = std::move(best);
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

json::value completion_logprobs(const ChoiceTokens& tokens, TextPosition& position,
                                const CompletionLogprobsForm& form,
                                const text::Tokenizer& tokenizer) {
  json::array texts, token_log_probs, best_of, offsets;
  const auto add = [&](TokenId id, std::size_t offset, const json::value& log_prob,
                       const std::vector<std::pair<float, TokenId>>* best) {
    texts.emplace_back(token_text(tokenizer, id));
    token_log_probs.push_back(log_prob);
    offsets.push_back(offset);
    if (best == nullptr || best->empty()) {
      best_of.push_back(nullptr);
      return;
    }
    json::object table;
    for (const auto& [other_log_prob, other] : *best)
      table[token_text(tokenizer, other)] = log_prob_number(other_log_prob);
    best_of.push_back(std::move(table));
  };
  if (form.echoes && !position.has_prompt) {
    const std::vector<std::size_t> prompt_offsets = offsets_of_prompt(tokens, tokenizer);
    for (std::size_t i = 0; i < std::min(tokens.prompt_ids.size(), tokens.input_log_probs.size());
         ++i) {
      add(tokens.prompt_ids[i], prompt_offsets[i],
          tokens.input_log_probs[i] ? log_prob_number(*tokens.input_log_probs[i])
                                    : json::value(nullptr),
          i < tokens.input_top.size() ? &tokens.input_top[i] : nullptr);
    }
    position.has_prompt = true;
    position.text_offset = num_characters(tokens.prompt_text);
  }
  for (std::size_t i = position.num_ids; i < std::min(tokens.ids.size(), tokens.log_probs.size());
       ++i) {
    add(tokens.ids[i], position.text_offset, log_prob_number(tokens.log_probs[i]),
        i < tokens.top.size() ? &tokens.top[i] : nullptr);
    position.text_offset += num_characters(position.decoder.push(tokens.ids[i]));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(token_log_probs)},
          {"top_logprobs", form.has_top ? json::value(std::move(best_of)) : json::value(nullptr)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace slime::engine
