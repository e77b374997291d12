#include "engine/http/openai_logprobs.h"

#include <fmt/format.h>

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

std::string token_text(const text::Tokenizer& tokenizer, TokenId id, bool writes_ids = false) {
  if (writes_ids) return fmt::format("token_id:{}", id);
  return tokenizer.decode(std::span(&id, 1), false);
}

/// The best of a position, as many as were asked for.
std::span<const std::pair<float, TokenId>> best_of(const TopLogProbs& top, std::size_t position,
                                                   int64_t num_top) {
  if (position >= top.size()) return {};
  const auto& best = top[position];
  return std::span(best).first(std::min(best.size(), static_cast<std::size_t>(num_top)));
}

std::vector<std::size_t> offsets_of(const EchoedPrompt& prompt, const text::Tokenizer& tokenizer) {
  std::vector<std::size_t> offsets;
  text::StreamDetokenizer decoder(tokenizer, false);
  std::size_t offset = 0;
  for (const TokenId id : prompt.ids) {
    offsets.push_back(offset);
    offset += num_characters(decoder.push(id));
  }
  offset += num_characters(decoder.flush());
  // Tokens that the tokenizer puts in front, a BOS, are not part of the text that the client sent.
  const std::size_t length = num_characters(prompt.text);
  const std::size_t in_front = offset - std::min(offset, length);
  for (std::size_t& start : offsets) start -= std::min(start, in_front);
  return offsets;
}

}  // namespace

json::value log_prob_number(float log_prob) {
  if (std::isnan(log_prob)) return nullptr;
  if (std::isinf(log_prob)) return -static_cast<double>(std::numeric_limits<float>::max());
  return static_cast<double>(log_prob);
}

json::array chat_logprob_entries(const ChoiceTokens& tokens, std::size_t first, std::size_t last,
                                 const LogprobsForm& form, const text::Tokenizer& tokenizer) {
  const auto entry = [&](TokenId id, float log_prob) {
    return json::object{{"token", token_text(tokenizer, id, form.writes_ids)},
                        {"bytes", bytes_of(tokenizer.token_bytes(id))},
                        {"logprob", log_prob_number(log_prob)}};
  };
  json::array content;
  last = std::min({last, tokens.ids.size(), tokens.log_probs.size()});
  for (std::size_t i = first; i < last; ++i) {
    json::object token = entry(tokens.ids[i], tokens.log_probs[i]);
    json::array best;
    for (const auto& [log_prob, id] : best_of(tokens.top, i, form.num_top))
      best.push_back(entry(id, log_prob));
    token["top_logprobs"] = std::move(best);
    content.push_back(std::move(token));
  }
  return content;
}

json::value chat_logprobs(const ChoiceTokens& tokens, std::size_t first, const LogprobsForm& form,
                          const text::Tokenizer& tokenizer) {
  return {{"content", chat_logprob_entries(tokens, first, tokens.ids.size(), form, tokenizer)},
          {"refusal", nullptr}};
}

json::value completion_logprobs(const ChoiceTokens& tokens, const EchoedPrompt* echoed,
                                TextPosition& position, const LogprobsForm& form,
                                const text::Tokenizer& tokenizer) {
  json::array texts, token_log_probs, best_log_probs, offsets;
  const auto add = [&](TokenId id, std::size_t offset, const json::value& log_prob,
                       const auto& best) {
    texts.emplace_back(token_text(tokenizer, id, form.writes_ids));
    token_log_probs.push_back(log_prob);
    offsets.push_back(offset);
    if (best.empty()) {
      best_log_probs.push_back(nullptr);
      return;
    }
    json::object table;
    for (const auto& [other_log_prob, other] : best)
      table[token_text(tokenizer, other, form.writes_ids)] = log_prob_number(other_log_prob);
    best_log_probs.push_back(std::move(table));
  };
  if (echoed != nullptr && !position.has_prompt) {
    const std::vector<std::size_t> prompt_offsets = offsets_of(*echoed, tokenizer);
    for (std::size_t i = 0; i < std::min(echoed->ids.size(), tokens.input_log_probs.size()); ++i) {
      add(echoed->ids[i], prompt_offsets[i],
          tokens.input_log_probs[i] ? log_prob_number(*tokens.input_log_probs[i])
                                    : json::value(nullptr),
          best_of(tokens.input_top, i, form.num_top));
    }
    position.has_prompt = true;
    position.text_offset = num_characters(echoed->text);
  }
  for (std::size_t i = position.num_ids; i < std::min(tokens.ids.size(), tokens.log_probs.size());
       ++i) {
    add(tokens.ids[i], position.text_offset, log_prob_number(tokens.log_probs[i]),
        best_of(tokens.top, i, form.num_top));
    position.text_offset += num_characters(position.decoder.push(tokens.ids[i]));
  }
  const bool has_top = form.num_top > 0;
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(token_log_probs)},
          {"top_logprobs", has_top ? json::value(std::move(best_log_probs)) : json::value(nullptr)},
          {"text_offset", std::move(offsets)}};
}

json::value prompt_logprobs(const std::vector<TokenId>& prompt, const ChoiceTokens& tokens,
                            int64_t num_top, const text::Tokenizer& tokenizer) {
  json::array positions;
  for (std::size_t i = 0; i < std::min(prompt.size(), tokens.input_log_probs.size()); ++i) {
    if (!tokens.input_log_probs[i]) {
      positions.push_back(nullptr);
      continue;
    }
    json::object table;
    const auto add = [&](TokenId id, float log_prob, const json::value& rank) {
      table[fmt::format("{}", id)] = {{"logprob", log_prob_number(log_prob)},
                                      {"rank", rank},
                                      {"decoded_token", token_text(tokenizer, id)}};
    };
    add(prompt[i], *tokens.input_log_probs[i], nullptr);
    std::int64_t rank = 0;
    for (const auto& [log_prob, id] : best_of(tokens.input_top, i, num_top))
      add(id, log_prob, ++rank);
    positions.push_back(std::move(table));
  }
  return positions;
}

}  // namespace slime::engine
