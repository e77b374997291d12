#include "cli/chat_template.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>

#include "cli/by_name.h"
#include "cli/options.h"
#include "core/calendar.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/field_reader.h"
#include "core/json_lines.h"
#include "text/chat_template.h"
#include "text/loss_mask.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::cli {
namespace {

/// What --now says; without it, now.
std::chrono::local_seconds time_of(const std::string& now) {
  if (now.empty()) return local_time(SystemClock().unix_seconds());
  const auto date = parse_date_text(now);
  if (!date)
    throw ConfigError(fmt::format("--now {}: a date is expected, such as 2026-01-31", now));
  return *date;
}

json::object to_json(const text::TemplateError& error) {
  // What the template itself says is passed on word for word.
  const bool has_line = error.line > 0 && error.kind != text::TemplateErrorKind::kTemplate;
  const std::string message =
      has_line ? fmt::format("{} (line {} of the template)", error.message, error.line)
               : error.message;
  return {{"error", {{"kind", text::to_string(error.kind)}, {"message", message}}}};
}

json::object refused(const std::string& message) {
  return {{"error", {{"kind", "refused"}, {"message", message}}}};
}

/// The whole conversation, with the mask of what is trained of it.
json::object masked(const json::array& messages, text::ChatOptions options, const std::string& type,
                    const std::string& answers, const text::ChatTemplate& chat,
                    const text::Tokenizer& tokenizer) {
  const auto mask_type = text::parse_loss_mask_type(type);
  if (!mask_type) return refused(mask_type.error().message);
  const auto trained = text::parse_trained_answers(answers);
  if (!trained) return refused(trained.error().message);
  std::vector<TokenId> end_ids;
  const auto& names = tokenizer.special_tokens();
  if (const auto eos = names.find("eos_token"); eos != names.end()) {
    if (const auto id = tokenizer.id_of(eos->second)) end_ids.push_back(*id);
  }
  const text::LossMasker masker(
      text::ConversationRenderer(chat, text::make_token_placer(tokenizer),
                                 {.chat = std::move(options), .end_ids = std::move(end_ids)}),
      *mask_type, *trained);
  const auto tokens = masker.mask(messages, nullptr);
  if (!tokens) return refused(tokens.error().message);
  return {{"ids", json::value_from(tokens->ids)}, {"loss_mask", json::value_from(tokens->mask)}};
}

json::object answer(const json::object& request, const JsonLines& input,
                    const text::ChatTemplate& chat, const text::Tokenizer& tokenizer,
                    std::chrono::local_seconds now) {
  const json::array& messages = *input.fields(request).array("messages");
  const json::object* given = FieldReader(request, input.where() + ": ").object("options");
  auto options = text::to_chat_options(given == nullptr ? json::object{} : *given);
  if (!options) return to_json(options.error());
  options->now = now;
  const FieldReader fields(request, input.where() + ": ");
  if (const auto type = fields.text("loss_mask")) {
    return masked(messages, std::move(*options), *type,
                  fields.text("trained_answers").value_or("all"), chat, tokenizer);
  }
  const auto text = chat.render(messages, *options);
  if (!text) return to_json(text.error());
  json::array ids;
  for (const TokenId id : tokenizer.encode(*text)) ids.push_back(id);
  return {{"text", *text}, {"ids", std::move(ids)}};
}

}  // namespace

int chat_template(std::span<const std::string> arguments) {
  CLI::App app(
      "Renders chat messages with a model's template.\n\n"
      "In:  {\"messages\": [...], \"options\": {\"add_generation_prompt\": true, \"tools\": [...], "
      "...}}\n"
      "Out: {\"text\": ..., \"ids\": [...]} or {\"error\": {\"kind\": ..., \"message\": ...}}\n\n"
      "With \"loss_mask\": \"auto\" (a --loss-mask-type) and perhaps \"trained_answers\": \"all\" "
      "in a line,\n"
      "out: {\"ids\": [...], \"loss_mask\": [...]} of the whole conversation, 1: trained",
      "slime chat-template");
  std::string model, now, file;
  app.add_option("--model", model, "model directory, or a model's name on the hub")->required();
  app.add_option("--now", now, "the date that templates see, YYYY-MM-DD; default: today");
  app.add_option("FILE", file, "JSON lines; default: standard input");
  if (const auto code = parse_options(app, arguments)) return *code;
  model = model_by_name(model, hub::Wanted::kText, "--model", "slime chat-template");

  const text::ChatTemplate chat = text::ChatTemplate::load(model);
  const auto tokenizer = text::Tokenizer::load(model);
  const auto time = time_of(now);
  JsonLines input(file);
  while (const auto request = input.next())
    write_json_line(answer(*request, input, chat, *tokenizer, time));
  return 0;
}

}  // namespace slime::cli
