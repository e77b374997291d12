#include "engine/http/anthropic/anthropic_answer.h"

#include <iterator>
#include <utility>

#include "engine/http/abort_status.h"
#include "engine/http/anthropic/anthropic_writer.h"
#include "engine/http/generate_request.h"
#include "engine/http/training_fields.h"

namespace slime::engine {
namespace {

void append(std::vector<ServerEvent>& events, std::vector<ServerEvent> more) {
  events.insert(events.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
}

class AnthropicAnswer final : public MessageAnswer {
 public:
  AnthropicAnswer(const AnthropicCall& call, VersionNamer namer, std::string request_id)
      : call_(call),
        prompt_ids_(call.chat.prompt_ids),
        namer_(std::move(namer)),
        request_id_(std::move(request_id)),
        choice_(call.chat.reading, call.chat.requests.front()),
        writer_({.id = make_rid(),
                 .model = call.request.form.model,
                 .streams = call.request.form.streams}) {}

  std::vector<ServerEvent> events_of_beginning() override {
    if (std::exchange(has_begun_, true)) return {};
    AnthropicUsage usage = this->usage();
    if (usage.prompt_tokens == 0)  // no update came yet
      usage.prompt_tokens = static_cast<std::int64_t>(prompt_ids_.size());
    return writer_.begin(usage);
  }

  std::vector<ServerEvent> events_of(const GenerateUpdate& update) override {
    const std::vector<text::MessageEvent> parts = choice_.add(update);
    std::vector<ServerEvent> events = events_of_beginning();
    append(events, writer_.add(parts));
    if (choice_.finish() && !is_http_error(choice_.finish()))
      append(events, writer_.finish(ending()));
    return events;
  }

  std::vector<ServerEvent> events_of_failure(const ApiError& error) override {
    return {{"error", json_text(anthropic_error(error, request_id_))}};
  }

  std::vector<ServerEvent> keep_alive() const override { return {anthropic_ping()}; }

  json::object whole() const override { return writer_.message(); }
  const ChatChoice& choice() const override { return choice_; }

 private:
  AnthropicUsage usage() const {
    const GenerateUpdate& last = choice_.last_update();
    return {.prompt_tokens = last.prompt_tokens,
            .cached_tokens = last.cached_tokens,
            .output_tokens = static_cast<std::int64_t>(choice_.tokens().ids.size())};
  }

  /// A message that was cut by a call of ours can be sent back and goes on: pause_turn.
  std::string stop_reason() const {
    const std::string_view word = choice_.finish_word();
    if (word == "tool_calls") return "tool_use";
    if (word == "abort") return "pause_turn";
    if (word == "length") {
      const auto num_output = static_cast<std::int64_t>(choice_.tokens().ids.size());
      return num_output < call_.max_tokens ? "model_context_window_exceeded" : "max_tokens";
    }
    return stop_string() ? "stop_sequence" : "end_turn";
  }

  std::optional<std::string> stop_string() const {
    const auto* text = std::get_if<std::string>(&choice_.finish()->matched);
    return text != nullptr ? std::optional(*text) : std::nullopt;
  }

  AnthropicEnd ending() const {
    AnthropicEnd end{.stop_reason = stop_reason(), .usage = usage()};
    if (end.stop_reason == "stop_sequence") end.stop_sequence = stop_string();
    end.training = training_fields(choice_, call_.request.form, prompt_ids_, namer_);
    if (!call_.request.warnings.empty())
      end.training["warnings"] = json::value_from(call_.request.warnings);
    return end;
  }

  const AnthropicCall& call_;
  const std::vector<TokenId> prompt_ids_;
  const VersionNamer namer_;
  const std::string request_id_;
  ChatChoice choice_;
  AnthropicWriter writer_;
  bool has_begun_ = false;
};

}  // namespace

std::unique_ptr<ProtocolAnswer> make_anthropic_answer(const AnthropicCall& call, VersionNamer namer,
                                                      std::string request_id) {
  return std::make_unique<AnthropicAnswer>(call, std::move(namer), std::move(request_id));
}

}  // namespace slime::engine
