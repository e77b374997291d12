#include "text/loss_mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace slime::text {
namespace {

constexpr std::size_t kLongestHeader = 256;  // bytes in front of an answer

bool has_role(const json::value& message, std::string_view role) {
  const json::value* value =
      message.is_object() ? message.get_object().if_contains("role") : nullptr;
  return value != nullptr && value->is_string() && std::string_view(value->get_string()) == role;
}

/// Null is a field that is missing: Parquet and tables of Python give every message all fields.
const json::value* mask_of(const json::value& message) {
  const json::value* mask =
      message.is_object() ? message.get_object().if_contains("step_loss_mask") : nullptr;
  return mask == nullptr || mask->is_null() ? nullptr : mask;
}

/// 0 or 1, as Python compares: also 1.0 and true. Nothing for other values.
std::optional<bool> is_trained(const json::value& mask) {
  if (mask.is_bool()) return mask.get_bool();
  if (!mask.is_number()) return std::nullopt;
  const auto number = mask.to_number<double>();
  return number == 0 || number == 1 ? std::optional(number == 1) : std::nullopt;
}

bool is_excluded(const json::value& message) {
  const json::value* mask = mask_of(message);
  return mask != nullptr && !is_trained(*mask).value_or(true);
}

/// The header that the family's template puts in front of an answer.
bool has_header(LossMaskType type, std::string_view before) {
  if (type == LossMaskType::kAuto) return true;
  if (type != LossMaskType::kDistillQwen)
    return before.find("<|im_start|>assistant") != std::string_view::npos;
  return before.find(
             "<\xef\xbd\x9c"
             "Assistant"
             "\xef\xbd\x9c>") != std::string_view::npos ||
         before.find("<|Assistant|>") != std::string_view::npos;
}

std::string_view name_of(LossMaskType type) {
  switch (type) {
    case LossMaskType::kAuto:
      return "auto";
    case LossMaskType::kQwen:
      return "qwen";
    case LossMaskType::kQwen3:
      return "qwen3";
    case LossMaskType::kQwen35:
      return "qwen3_5";
    case LossMaskType::kDistillQwen:
      return "distill_qwen";
  }
  return "auto";
}

}  // namespace

Expected<LossMaskType> parse_loss_mask_type(std::string_view word) {
  for (const LossMaskType type : {LossMaskType::kAuto, LossMaskType::kQwen, LossMaskType::kQwen3,
                                  LossMaskType::kQwen35, LossMaskType::kDistillQwen}) {
    if (name_of(type) == word) return type;
  }
  return failure(fmt::format(
      "loss mask type \"{}\": auto, qwen, qwen3, qwen3_5 and distill_qwen exist", word));
}

Expected<TrainedAnswers> parse_trained_answers(std::string_view word) {
  if (word == "all") return TrainedAnswers::kAll;
  if (word == "last") return TrainedAnswers::kLast;
  if (word == "unchanged") return TrainedAnswers::kUnchanged;
  return failure(fmt::format("trained answers \"{}\": all, last and unchanged exist", word));
}

int64_t response_length(std::span<const uint8_t> mask) {
  return mask.end() - std::find(mask.begin(), mask.end(), uint8_t{1});
}

Expected<std::vector<Answer>> LossMasker::trained(const RenderedConversation& conversation,
                                                  const json::array& messages,
                                                  const json::value& tools) const {
  const auto is_users = [](const json::value& message) { return has_role(message, "user"); };
  const auto last_user = std::find_if(messages.rbegin(), messages.rend(), is_users);
  const auto behind = static_cast<std::size_t>(messages.rend() - last_user);
  std::vector<Answer> trained;
  for (const Answer& answer : conversation.answers) {
    if (answer.first == answer.last || is_excluded(messages[answer.message])) continue;
    if (answers_ == TrainedAnswers::kLast && answer.message < behind) continue;
    if (answers_ == TrainedAnswers::kUnchanged) {
      const auto is_unchanged = renderer_.is_as_written(messages, tools, answer.message);
      if (!is_unchanged) return tl::make_unexpected(is_unchanged.error());
      if (!*is_unchanged) continue;
    }
    trained.push_back(answer);
  }
  return trained;
}

Expected<MaskedTokens> LossMasker::mask(const json::array& messages,
                                        const json::value& tools) const {
  if (messages.empty()) return failure("a conversation needs at least one message");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const json::value* mask = mask_of(messages[i]);
    if (mask != nullptr && !is_trained(*mask)) {
      return failure(fmt::format("message {}: \"step_loss_mask\" should be 0 or 1, it is {}", i,
                                 json_text(*mask)));
    }
  }
  const auto conversation = renderer_.conversation(messages, tools);
  if (!conversation) return tl::make_unexpected(conversation.error());
  const auto answers = trained(*conversation, messages, tools);
  if (!answers) return tl::make_unexpected(answers.error());
  if (!answers->empty()) {
    const std::size_t begin = answers->front().begin;
    const std::size_t from = begin - std::min(begin, kLongestHeader);
    if (!has_header(type_, std::string_view(conversation->text).substr(from, begin - from))) {
      return failure(fmt::format(
          "--loss-mask-type {} is for templates with {} in front of answers, and the model's has "
          "none; auto reads any template",
          name_of(type_),
          type_ == LossMaskType::kDistillQwen ? "<\xef\xbd\x9c"
                                                "Assistant"
                                                "\xef\xbd\x9c>"
                                              : "<|im_start|>assistant"));
    }
  }
  MaskedTokens out{.ids = conversation->ids(), .mask = {}};
  out.mask.assign(out.ids.size(), 0);
  for (const Answer& answer : *answers) {
    std::fill(out.mask.begin() + static_cast<std::ptrdiff_t>(answer.first),
              out.mask.begin() + static_cast<std::ptrdiff_t>(answer.last), uint8_t{1});
  }
  return out;
}

}  // namespace slime::text
