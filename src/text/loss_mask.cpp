#include "text/loss_mask.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::text {
namespace {

constexpr std::string_view kProbe = "FOR TESTING ONLY";
constexpr std::string_view kAuxiliary = "FOR CALCULATING LOSS MASK ONLY";
constexpr std::string_view kTurnStart = "<|im_start|>assistant\n";
constexpr std::string_view kTurnEnd = "<|im_end|>";
constexpr std::string_view kThinkStart = "<think>\n";
// DeepSeek's distilled models carry this token, with full-width bars.
constexpr std::string_view kDistillMarker =
    "<\xef\xbd\x9c"
    "Assistant"
    "\xef\xbd\x9c>";

json::value user_message(std::string_view content) {
  return {{"role", "user"}, {"content", content}};
}

std::string_view role_of(const json::value& message) {
  const json::value* role =
      message.is_object() ? message.get_object().if_contains("role") : nullptr;
  return role != nullptr && role->is_string() ? std::string_view(role->get_string())
                                              : std::string_view();
}

bool is_excluded(const json::value& message) {
  const json::value* mask =
      message.is_object() ? message.get_object().if_contains("step_loss_mask") : nullptr;
  return mask != nullptr && *mask != json::value(1);
}

void append(MaskedTokens& out, std::span<const TokenId> ids, std::size_t first_trained) {
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  const std::size_t zeros = std::min(first_trained, ids.size());
  out.mask.insert(out.mask.end(), zeros, 0);
  out.mask.insert(out.mask.end(), ids.size() - zeros, 1);
}

}  // namespace

Expected<LossMaskType> parse_loss_mask_type(std::string_view word) {
  if (word == "qwen") return LossMaskType::kQwen;
  if (word == "qwen3") return LossMaskType::kQwen3;
  if (word == "qwen3_5") return LossMaskType::kQwen35;
  if (word == "distill_qwen") return LossMaskType::kDistillQwen;
  return failure(
      fmt::format("loss mask type \"{}\": qwen, qwen3, qwen3_5 and distill_qwen exist", word));
}

ChatCodec make_chat_codec(const ChatTemplate& chat, const Tokenizer& tokenizer,
                          std::chrono::local_seconds now) {
  ChatCodec codec;
  codec.render = [&chat, now](const json::array& messages, const json::value& tools,
                              bool generation_prompt) -> Expected<std::string> {
    ChatOptions options;
    options.add_generation_prompt = generation_prompt;
    options.tools = tools;
    options.now = now;
    auto text = chat.render(messages, options);
    if (!text) return failure("chat template: " + text.error().message);
    return *std::move(text);
  };
  codec.encode = [&tokenizer](std::string_view text) { return tokenizer.encode(text); };
  codec.token_bytes = [&tokenizer](TokenId id) { return tokenizer.token_bytes(id); };
  codec.has_token = [&tokenizer](std::string_view token) {
    return tokenizer.id_of(token).has_value();
  };
  return codec;
}

int64_t response_length(std::span<const uint8_t> mask) {
  return mask.end() - std::find(mask.begin(), mask.end(), uint8_t{1});
}

Expected<TemplateLengths> measure_template(const ChatCodec& codec) {
  const json::array probes = {user_message(kProbe), user_message(kProbe)};
  const auto text = codec.render(probes, nullptr, false);
  if (!text) return tl::make_unexpected(text.error());
  const auto with_prompt = codec.render(probes, nullptr, true);
  if (!with_prompt) return tl::make_unexpected(with_prompt.error());
  const auto ids = codec.encode(*text);
  const auto probe = codec.encode(kProbe);
  const auto first = std::search(ids.begin(), ids.end(), probe.begin(), probe.end());
  const auto second =
      first == ids.end() ? first : std::search(first + 1, ids.end(), probe.begin(), probe.end());
  if (second == ids.end()) {
    return failure(
        "the chat template does not repeat the text of two user messages, so the parts it adds "
        "cannot be measured; "
        "use the loss mask type qwen3_5");
  }
  const auto length = static_cast<int64_t>(probe.size());
  const int64_t p1 = first - ids.begin();
  const int64_t p2 = second - ids.begin();
  const int64_t end = static_cast<int64_t>(ids.size()) - length - p2;
  TemplateLengths lengths;
  lengths.system = std::max<int64_t>(0, p1 - ((p2 - p1) - end - length));
  lengths.generation =
      static_cast<int64_t>(codec.encode(*with_prompt).size()) - static_cast<int64_t>(ids.size());
  if (lengths.generation < 0)
    return failure("the chat template gives less text with a generation prompt than without");
  return lengths;
}

Expected<LossMasker> LossMasker::make(LossMaskType type, ChatCodec codec) {
  if (type == LossMaskType::kQwen && codec.has_token(kDistillMarker))
    type = LossMaskType::kDistillQwen;
  TemplateLengths lengths;
  if (type == LossMaskType::kQwen || type == LossMaskType::kQwen3) {
    auto measured = measure_template(codec);
    if (!measured) return tl::make_unexpected(measured.error());
    lengths = *measured;
  }
  return LossMasker(type, std::move(codec), lengths);
}

Expected<MaskedTokens> LossMasker::mask(const json::array& messages,
                                        const json::value& tools) const {
  if (messages.empty()) return failure("a conversation needs at least one message");
  switch (type_) {
    case LossMaskType::kQwen:
    case LossMaskType::kQwen3:
      return mask_one_by_one(messages, tools);
    case LossMaskType::kQwen35:
      return mask_by_markers(messages, tools);
    case LossMaskType::kDistillQwen:
      return mask_single_answer(messages, tools);
  }
  return failure("unknown loss mask type");
}

Expected<std::vector<TokenId>> LossMasker::tokenize(const json::array& messages,
                                                    const json::value& tools,
                                                    bool generation_prompt) const {
  const auto text = codec_.render(messages, tools, generation_prompt);
  if (!text) return tl::make_unexpected(text.error());
  return codec_.encode(*text);
}

Expected<std::vector<TokenId>> LossMasker::tokens_of_block(const json::array& block, bool is_first,
                                                           const json::value& tools) const {
  if (type_ == LossMaskType::kQwen) return tokenize(block, is_first ? tools : json::value(), false);
  const json::value auxiliary = user_message(kAuxiliary);
  const auto alone = tokenize({auxiliary}, nullptr, false);
  if (!alone) return alone;
  json::array together = block;
  together.insert(is_first ? together.end() : together.begin(), auxiliary);
  auto ids = tokenize(together, is_first ? tools : json::value(), false);
  if (!ids) return ids;
  if (ids->size() < alone->size())
    return failure("the chat template gives less text for two messages than for one");
  const auto count = static_cast<std::ptrdiff_t>(alone->size());
  if (is_first) {
    ids->erase(ids->end() - count, ids->end());
  } else {
    ids->erase(ids->begin(), ids->begin() + count);
  }
  return ids;
}

Expected<MaskedTokens> LossMasker::mask_one_by_one(const json::array& messages,
                                                   const json::value& tools) const {
  MaskedTokens out;
  for (std::size_t i = 0; i < messages.size();) {
    json::array block = {messages[i]};
    const bool is_first = i == 0;
    // A run of tool messages becomes one turn of the template, so it is one block here too.
    while (type_ == LossMaskType::kQwen3 && role_of(block[0]) == "tool" &&
           i + block.size() < messages.size() && role_of(messages[i + block.size()]) == "tool") {
      block.push_back(messages[i + block.size()]);
    }
    i += block.size();
    auto rendered = tokens_of_block(block, is_first, tools);
    if (!rendered) return tl::make_unexpected(rendered.error());
    std::span<const TokenId> ids = *rendered;
    if (!is_first && role_of(block[0]) != "system") {
      ids = ids.subspan(std::min(ids.size(), static_cast<std::size_t>(lengths_.system)));
    }
    const bool is_trained = role_of(block[0]) == "assistant" && !is_excluded(block[0]);
    append(out, ids, is_trained ? static_cast<std::size_t>(lengths_.generation) : ids.size());
  }
  return out;
}

Expected<MaskedTokens> LossMasker::mask_by_markers(const json::array& messages,
                                                   const json::value& tools) const {
  const auto text = codec_.render(messages, tools, false);
  if (!text) return tl::make_unexpected(text.error());

  std::vector<std::pair<std::size_t, std::size_t>> trained;  // byte ranges of the text
  std::size_t cursor = 0;
  for (const json::value& message : messages) {
    if (role_of(message) != "assistant") continue;
    const std::size_t start = text->find(kTurnStart, cursor);
    const std::size_t end =
        start == std::string::npos ? start : text->find(kTurnEnd, start + kTurnStart.size());
    if (end == std::string::npos) {
      return failure(
          "an assistant message has no <|im_start|>assistant ... <|im_end|> in the rendered text; "
          "the loss mask type qwen3_5 is for ChatML templates");
    }
    cursor = end + kTurnEnd.size();
    if (cursor < text->size() && (*text)[cursor] == '\n') ++cursor;
    if (is_excluded(message)) continue;
    std::size_t from = start + kTurnStart.size();
    if (std::string_view(*text).substr(from).starts_with(kThinkStart)) from += kThinkStart.size();
    trained.emplace_back(from, cursor);
  }

  MaskedTokens out;
  out.ids = codec_.encode(*text);
  std::size_t at = 0;
  for (const TokenId id : out.ids) {
    const std::string_view bytes = codec_.token_bytes(id);
    if (std::string_view(*text).substr(at, bytes.size()) != bytes) {
      return failure(
          "the tokenizer changes the text, so its tokens have no place in it; use another loss "
          "mask type");
    }
    const std::size_t end = at + bytes.size();
    out.mask.push_back(!bytes.empty() &&
                       std::any_of(trained.begin(), trained.end(), [&](const auto& range) {
                         return at < range.second && end > range.first;
                       }));
    at = end;
  }
  if (at != text->size())
    return failure("the tokenizer drops part of the text; use another loss mask type");
  return out;
}

Expected<MaskedTokens> LossMasker::mask_single_answer(const json::array& messages,
                                                      const json::value& tools) const {
  const auto prompt = tokenize({messages.front()}, tools, true);
  if (!prompt) return tl::make_unexpected(prompt.error());
  const json::value* content =
      messages.back().is_object() ? messages.back().get_object().if_contains("content") : nullptr;
  if (content == nullptr || !content->is_string())
    return failure("the last message has no text to train on");
  const auto answer = codec_.encode(content->get_string());
  MaskedTokens out;
  append(out, *prompt, prompt->size());
  append(out, answer, is_excluded(messages.back()) ? answer.size() : 0);
  return out;
}

}  // namespace slime::text
