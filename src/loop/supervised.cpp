#include "loop/supervised.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slime::loop {
namespace {

text::LossMasker make_masker(const ModelText& text, const std::string& mask_type) {
  const auto type = text::parse_loss_mask_type(mask_type);
  if (!type) throw ConfigError("--loss-mask-type: " + type.error().message);
  auto masker =
      text::LossMasker::make(*type, text::make_chat_codec(*text.chat, *text.tokenizer, text.today));
  if (!masker)
    throw ConfigError(fmt::format("--loss-mask-type {}: {}", mask_type, masker.error().message));
  return std::move(*masker);
}

/// A string is one user message, as in generation; a conversation is its messages, which the sample
/// holds as JSON. A text may begin with a bracket too.
json::array messages_of(const Sample& sample) {
  json::array text{json::object{{"role", "user"}, {"content", sample.prompt}}};
  if (!sample.prompt.starts_with("[{")) return text;
  const std::optional<json::value> messages = try_parse_json(sample.prompt);
  return messages && messages->is_array() ? messages->get_array() : text;
}

}  // namespace

SupervisedRows::SupervisedRows(const ModelText& text, const std::string& mask_type)
    : masker_(make_masker(text, mask_type)) {}

bool SupervisedRows::complete(Group& group) const {
  for (Sample& sample : group.samples) {
    if (!fill(sample, messages_of(sample))) return false;
  }
  return true;
}

bool SupervisedRows::complete_pair(Group& group, const std::string& chosen_key,
                                   const std::string& rejected_key) const {
  check(group.samples.size() == 2, "a preference is a pair");
  for (const auto& [sample, key] :
       {std::pair{&group.samples[0], &chosen_key}, std::pair{&group.samples[1], &rejected_key}}) {
    json::array messages = messages_of(*sample);
    for (json::value& message : messages) {
      if (message.is_object()) message.get_object()["step_loss_mask"] = 0;
    }
    const json::value* response = sample->metadata.if_contains(*key);
    check(response != nullptr, "a row of preferences has both responses");
    if (response->is_string()) {
      messages.push_back(json::object{{"role", "assistant"}, {"content", *response}});
    } else {
      for (const json::value& message : response->as_array()) messages.push_back(message);
    }
    if (!fill(*sample, messages)) return false;
  }
  return true;
}

bool SupervisedRows::fill(Sample& sample, const json::array& messages) const {
  const json::value* tools = sample.metadata.if_contains("tools");
  const auto masked = masker_.mask(messages, tools == nullptr ? json::value() : *tools);
  if (!masked)
    throw ConfigError(fmt::format("prompt {}: {}", sample.group, masked.error().message));
  const int64_t response = text::response_length(masked->mask);
  if (response == 0 || response == static_cast<int64_t>(masked->ids.size())) return false;
  sample.tokens = masked->ids;
  sample.prompt_length = static_cast<int64_t>(sample.tokens.size()) - response;
  sample.loss_mask.assign(masked->mask.end() - response, masked->mask.end());
  sample.status = Status::kCompleted;
  sample.reward = 0.0;
  return true;
}

}  // namespace slime::loop
