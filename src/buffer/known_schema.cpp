#include "buffer/known_schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "buffer/dataset_row.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

const json::value* list_in(const json::object& row, std::string_view key) {
  const json::value* field = row.if_contains(key);
  const json::array* list = field == nullptr ? nullptr : field->if_array();
  return list != nullptr && !list->empty() && list->front().is_object() ? field : nullptr;
}

std::string_view text_in_row(const json::object& row, std::string_view key) {
  const json::value* field = row.if_contains(key);
  return field != nullptr && field->is_string() ? std::string_view(field->get_string())
                                                : std::string_view();
}

bool has_text(const json::object& row, std::string_view key) {
  const json::value* field = row.if_contains(key);
  return field != nullptr && field->is_string();
}

/// A copy, as setting a field may move the others.
void set_field(json::object& row, const std::string& key, json::value value) {
  if (!key.empty()) row[key] = std::move(value);
}

void set_prompt_and_answer(json::object& row, const RowKeys& keys, RowUse use,
                           const json::value& prompt, const json::value& answer) {
  const json::value question = prompt, text = answer;
  set_field(row, keys.input, question);
  if (use == RowUse::kSupervised) set_field(row, keys.completion, text);
}

/// A conversation to train on, or the part of it up to the last question.
void set_messages(json::object& row, const RowKeys& keys, RowUse use, json::array messages) {
  if (use != RowUse::kSupervised) {
    while (!messages.empty()) {
      const json::object* last = messages.back().if_object();
      const json::value* role = last == nullptr ? nullptr : last->if_contains("role");
      if (role == nullptr || *role != "assistant") break;
      messages.pop_back();
    }
  }
  set_field(row, keys.input, std::move(messages));
}

// GSM8K.

constexpr std::string_view kAnswerMark = "####";

bool is_gsm8k(const json::object& row) {
  return has_text(row, "question") &&
         text_in_row(row, "answer").find(kAnswerMark) != std::string_view::npos;
}

void apply_gsm8k(json::object& row, const RowKeys& keys, RowUse use, json::value& label) {
  const std::string answer(text_in_row(row, "answer"));
  std::string_view number =
      std::string_view(answer).substr(answer.rfind(kAnswerMark) + kAnswerMark.size());
  const auto is_blank = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!number.empty() && is_blank(number.front())) number.remove_prefix(1);
  while (!number.empty() && is_blank(number.back())) number.remove_suffix(1);
  label = json::value(number);
  set_prompt_and_answer(row, keys, use, row.at("question"), row.at("answer"));
}

// MATH.

/// What the last \boxed{...} of a solution holds.
std::optional<std::string> last_boxed(std::string_view solution) {
  constexpr std::string_view kBoxed = "\\boxed{";
  const std::size_t at = solution.rfind(kBoxed);
  if (at == std::string_view::npos) return std::nullopt;
  int depth = 1;
  for (std::size_t i = at + kBoxed.size(); i < solution.size(); ++i) {
    if (solution[i] == '{') ++depth;
    if (solution[i] == '}' && --depth == 0)
      return std::string(solution.substr(at + kBoxed.size(), i - at - kBoxed.size()));
  }
  return std::nullopt;
}

bool is_math(const json::object& row) {
  return has_text(row, "problem") && has_text(row, "solution") &&
         (has_text(row, "answer") || last_boxed(text_in_row(row, "solution")));
}

void apply_math(json::object& row, const RowKeys& keys, RowUse use, json::value& label) {
  label = has_text(row, "answer") ? row.at("answer")
                                  : json::value(*last_boxed(text_in_row(row, "solution")));
  set_prompt_and_answer(row, keys, use, row.at("problem"), row.at("solution"));
}

// DAPO-Math, and others of verl's form.

bool is_dapo(const json::object& row) {
  const json::value* model = row.if_contains("reward_model");
  return list_in(row, "prompt") != nullptr && model != nullptr && model->is_object() &&
         model->get_object().contains("ground_truth");
}

void apply_dapo(json::object& row, const RowKeys& keys, RowUse, json::value& label) {
  label = row.at("reward_model").get_object().at("ground_truth");
  const json::value prompt = row.at("prompt");
  set_field(row, keys.input, prompt);
}

// ShareGPT and OpenHermes.

std::string_view role_of_speaker(std::string_view from) {
  static constexpr auto kRoles = std::to_array<std::pair<std::string_view, std::string_view>>({
      {"human", "user"},
      {"user", "user"},
      {"gpt", "assistant"},
      {"assistant", "assistant"},
      {"chatgpt", "assistant"},
      {"bing", "assistant"},
      {"bard", "assistant"},
      {"model", "assistant"},
      {"system", "system"},
      {"tool", "tool"},
      {"function_response", "tool"},
      {"observation", "tool"},
  });
  for (const auto& [speaker, role] : kRoles)
    if (from == speaker) return role;
  return from;  // the template decides whether it knows it
}

bool is_sharegpt(const json::object& row) {
  const json::value* turns = list_in(row, "conversations");
  return turns != nullptr && turns->get_array().front().get_object().contains("from") &&
         turns->get_array().front().get_object().contains("value");
}

void apply_sharegpt(json::object& row, const RowKeys& keys, RowUse use, json::value&) {
  json::array messages;
  const std::string_view system = text_in_row(row, "system_prompt");
  const json::array& turns = row.at("conversations").get_array();
  for (const json::value& turn : turns) {
    const json::object* said = turn.if_object();
    const json::value* value = said == nullptr ? nullptr : said->if_contains("value");
    const std::string_view role =
        said == nullptr ? std::string_view() : role_of_speaker(text_in_row(*said, "from"));
    if (messages.empty() && role != "system" && !system.empty())
      messages.push_back(json::object{{"role", "system"}, {"content", system}});
    messages.push_back(
        json::object{{"role", role}, {"content", value == nullptr ? json::value() : *value}});
  }
  set_messages(row, keys, use, std::move(messages));
}

// UltraFeedback, and others with a text as prompt and conversations as its two answers.

bool is_ultrafeedback(const json::object& row) {
  return has_text(row, "prompt") && list_in(row, "chosen") != nullptr &&
         list_in(row, "rejected") != nullptr;
}

void apply_ultrafeedback(json::object& row, const RowKeys& keys, RowUse use, json::value&) {
  if (use == RowUse::kSupervised) {
    json::array chosen = row.at("chosen").get_array();
    set_messages(row, keys, use, std::move(chosen));
    return;
  }
  const json::value prompt = row.at("prompt"), chosen = row.at("chosen"),
                    rejected = row.at("rejected");
  set_field(row, keys.input, prompt);
  set_field(row, keys.chosen, chosen);
  set_field(row, keys.rejected, rejected);
}

// Alpaca.

bool is_alpaca(const json::object& row) {
  return has_text(row, "instruction") && has_text(row, "output");
}

void apply_alpaca(json::object& row, const RowKeys& keys, RowUse use, json::value&) {
  std::string prompt(text_in_row(row, "instruction"));
  if (const std::string_view input = text_in_row(row, "input"); !input.empty())
    prompt += fmt::format("\n\n{}", input);
  set_prompt_and_answer(row, keys, use, json::value(prompt), row.at("output"));
}

// A list of messages.

bool is_chat(const json::object& row) {
  const json::value* messages = list_in(row, "messages");
  return messages != nullptr && messages->get_array().front().get_object().contains("role");
}

void apply_chat(json::object& row, const RowKeys& keys, RowUse use, json::value&) {
  json::array messages = row.at("messages").get_array();
  set_messages(row, keys, use, std::move(messages));
}

/// Flags that name fields keep their defaults where users say nothing.
constexpr std::string_view kDefaultInput = "input";

}  // namespace

const std::vector<KnownSchema>& known_schemas() {
  static const std::vector<KnownSchema> kSchemas{
      {"gsm8k", "GSM8K", "question is the prompt, what follows #### in answer the label", is_gsm8k,
       apply_gsm8k},
      {"math", "MATH", "problem is the prompt, answer (or the box of solution) the label", is_math,
       apply_math},
      {"dapo", "DAPO-Math", "prompt is the conversation, reward_model.ground_truth the label",
       is_dapo, apply_dapo},
      {"sharegpt", "ShareGPT, OpenHermes", "conversations (from, value) are the messages",
       is_sharegpt, apply_sharegpt},
      {"ultrafeedback", "UltraFeedback", "prompt, and the conversations chosen and rejected",
       is_ultrafeedback, apply_ultrafeedback},
      {"alpaca", "Alpaca", "instruction and input are the prompt, output the answer", is_alpaca,
       apply_alpaca},
      {"chat", "chat messages", "messages are the conversation", is_chat, apply_chat},
  };
  return kSchemas;
}

std::vector<std::string_view> known_formats() {
  std::vector<std::string_view> names{"auto", "none"};
  for (const KnownSchema& schema : known_schemas()) names.push_back(schema.name);
  return names;
}

const KnownSchema* schema_of(const json::object& row, const RowKeys& keys, std::string_view where) {
  if (keys.format == "none") return nullptr;
  if (keys.format != "auto") {
    const auto found = std::ranges::find(known_schemas(), keys.format, &KnownSchema::name);
    check(found != known_schemas().end(), "--data-format was checked");
    if (found->fits(row)) return &*found;
    throw ConfigError(fmt::format("{}: is no row of {} (--data-format {}): {}", where, found->title,
                                  keys.format, found->says));
  }
  if (keys.input != kDefaultInput) return nullptr;  // the user has said which field it is
  // Alpaca has a field of this name, which is half a prompt.
  const bool has_input = find_field(row, keys.input) != nullptr && !is_alpaca(row);
  if (has_input) return nullptr;
  for (const KnownSchema& schema : known_schemas())
    if (schema.fits(row)) return &schema;
  return nullptr;
}

}  // namespace slime::buffer
