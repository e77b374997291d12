#include "setup/supervised.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "model/config.h"

namespace slime::setup {
namespace {

text::LossMasker make_masker(const config::RunConfig& config, const ModelText& text,
                             const std::vector<TokenId>& end_ids) {
  const auto type = text::parse_loss_mask_type(config.loss_mask_type);
  if (!type) throw ConfigError("--loss-mask-type: " + type.error().message);
  const auto answers = text::parse_trained_answers(config.trained_answers);
  if (!answers) throw ConfigError("--trained-answers: " + answers.error().message);
  // What is trained of a pair is its responses, whichever they are.
  return {make_renderer(config, text, end_ids), *type,
          config.is_preference() ? text::TrainedAnswers::kAll : *answers};
}

/// The prompt of a row: messages, which no template has rendered, or a text.
json::value prompt_of(const Sample& sample) {
  const json::value* messages = sample.user_fields.if_contains("prompt");
  return messages != nullptr && messages->is_array() ? *messages : json::value(sample.prompt);
}

/// Whether a text is a conversation that was stored as JSON text. Nobody means to train on that.
bool spells_messages(std::string_view text) {
  if (!text.starts_with("[{")) return false;
  const std::optional<json::value> value = try_parse_json(text);
  const json::array* list = value ? value->if_array() : nullptr;
  return list != nullptr && std::ranges::all_of(*list, [](const json::value& message) {
           return message.is_object() && message.get_object().contains("role");
         });
}

json::array as_messages(const json::value& prompt) {
  if (const json::array* messages = prompt.if_array()) return *messages;
  return json::array{json::object{{"role", "user"}, {"content", prompt}}};
}

}  // namespace

SupervisedRows::SupervisedRows(const config::RunConfig& config, const ModelText& text)
    : config_(config),
      text_(text),
      masker_(make_masker(config, text, end_ids_of(config, text))),
      end_ids_(end_ids_of(config, text)),
      max_positions_(model::read_model_config(config.hf_checkpoint).max_positions) {}

Expected<text::MaskedTokens> SupervisedRows::conversation(json::array prompt,
                                                          const json::value* response,
                                                          const json::object& metadata) const {
  if (response != nullptr) {
    for (json::value& message : prompt) {
      if (message.is_object()) message.get_object()["step_loss_mask"] = 0;
    }
    if (response->is_string()) {
      prompt.push_back(json::object{{"role", "assistant"}, {"content", *response}});
    } else {
      for (const json::value& message : response->get_array()) prompt.push_back(message);
    }
  }
  const json::value* tools = metadata.if_contains("tools");
  return masker_.mask(prompt, tools == nullptr ? json::value() : *tools);
}

text::MaskedTokens SupervisedRows::plain_text(const std::string& prompt,
                                              const std::string& trained) const {
  // What the tokenizer puts in front of a text (a BOS), and the token that ends it.
  const text::Tokenizer& tokenizer = *text_.tokenizer;
  text::MaskedTokens row{.ids = tokenizer.prefix(), .mask = {}};
  row.mask.assign(row.ids.size(), 0);
  for (const text::PlacedToken& token : tokenizer.encode_placed(prompt + trained)) {
    row.ids.push_back(token.id);
    row.mask.push_back(token.end > prompt.size() ? 1 : 0);
  }
  const bool has_end =
      !row.ids.empty() && std::ranges::find(end_ids_, row.ids.back()) != end_ids_.end();
  if (!has_end && !end_ids_.empty()) {
    row.ids.push_back(end_ids_.front());
    row.mask.push_back(1);
  }
  return row;
}

Expected<SupervisedRows::Rows> SupervisedRows::read(const json::value& prompt,
                                                    const json::object& metadata) const {
  Rows rows;
  const auto add = [&](Expected<text::MaskedTokens> row) -> std::optional<Error> {
    if (!row) return row.error();
    if (auto problem = missing_row(text_, row->ids)) return Error{*std::move(problem)};
    // Nothing says what the first token of all should be.
    if (!row->mask.empty()) row->mask.front() = 0;
    rows.push_back(std::move(*row));
    return std::nullopt;
  };
  if (config_.is_preference()) {
    for (const std::string& key : {config_.chosen_key, config_.rejected_key}) {
      const json::value* response = metadata.if_contains(key);
      if (response == nullptr) return failure(fmt::format("no field \"{}\"", key));
      if (auto problem = add(conversation(as_messages(prompt), response, metadata)))
        return tl::make_unexpected(*problem);
    }
    return rows;
  }
  const std::string& completion_key = config_.completion_key;
  const json::value* completion = metadata.if_contains(completion_key);
  const bool is_text = prompt.is_string() && (completion == nullptr || completion->is_string()) &&
                       !(completion != nullptr && config_.apply_chat_template);
  if (is_text) {
    if (config_.apply_chat_template) {
      return failure(fmt::format(
          "a plain text has no roles that a template could render: leave out "
          "--apply-chat-template, or give messages (--input-key) or a \"{}\" (--completion-key)",
          completion_key));
    }
    const std::string text(prompt.get_string());
    if (completion == nullptr && spells_messages(text)) {
      return failure(
          "the text is a list of messages, as JSON text: give the list itself, a text is trained "
          "word by word");
    }
    const std::string trained(completion == nullptr ? std::string_view()
                                                    : std::string_view(completion->get_string()));
    auto problem = add(completion == nullptr ? plain_text("", text) : plain_text(text, trained));
    if (problem) return tl::make_unexpected(*problem);
    return rows;
  }
  auto problem = add(conversation(as_messages(prompt), completion, metadata));
  if (problem) return tl::make_unexpected(*problem);
  return rows;
}

std::optional<std::string> SupervisedRows::left_out(const Rows& rows) const {
  if (config_.is_preference() && rows[0].ids == rows[1].ids) return "chosen_is_rejected";
  for (const text::MaskedTokens& row : rows) {
    const auto total = static_cast<int64_t>(row.ids.size());
    const int64_t response = text::response_length(row.mask);
    const auto exceeds = [](int64_t length, const std::optional<int64_t>& limit) {
      return limit && length > *limit;
    };
    if (response == 0) return "no_trained_token";
    if (max_positions_ > 0 && total > max_positions_) return "longer_than_the_model";
    if (exceeds(total, config_.rollout_max_context_len)) return "longer_than_max_context_len";
    if (exceeds(total - response, config_.rollout_max_prompt_len))
      return "prompt_longer_than_max_prompt_len";
    if (exceeds(response, config_.rollout_max_response_len))
      return "response_longer_than_max_response_len";
  }
  return std::nullopt;
}

std::optional<std::string> SupervisedRows::left_out(const buffer::DatasetRow& row) const {
  const auto rows = read(row.prompt, row.metadata);
  if (!rows) throw ConfigError(rows.error().message);
  return left_out(*rows);
}

std::optional<std::string> SupervisedRows::complete(Group& group) const {
  const Sample& first = group.samples.front();
  auto rows = read(prompt_of(first), first.metadata);
  if (!rows) throw ConfigError(fmt::format("prompt {}: {}", first.group, rows.error().message));
  if (auto reason = left_out(*rows)) return reason;
  check(!config_.is_preference() || group.samples.size() == 2, "a preference is a pair");
  for (std::size_t i = 0; i < group.samples.size(); ++i) {
    Sample& sample = group.samples[i];
    const text::MaskedTokens& row = (*rows)[std::min(i, rows->size() - 1)];
    const int64_t response = text::response_length(row.mask);
    sample.tokens = row.ids;
    sample.prompt_length = static_cast<int64_t>(sample.tokens.size()) - response;
    sample.loss_mask.assign(row.mask.end() - response, row.mask.end());
    sample.status = Status::kCompleted;
    sample.reward = 0.0;
  }
  return std::nullopt;
}

}  // namespace slime::setup
