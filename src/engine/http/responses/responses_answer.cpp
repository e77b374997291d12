#include "engine/http/responses/responses_answer.h"

#include <ctime>
#include <iterator>
#include <utility>

#include "engine/http/abort_status.h"
#include "engine/http/generate_request.h"
#include "engine/http/openai_logprobs.h"
#include "engine/http/responses/responses_writer.h"
#include "engine/http/training_fields.h"

namespace slime::engine {
namespace {

using Outcome = ResponsesEnd::Outcome;

void append(std::vector<ServerEvent>& events, std::vector<ServerEvent> more) {
  events.insert(events.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
}

class ResponsesAnswer final : public MessageAnswer {
 public:
  ResponsesAnswer(const ResponsesCall& call, VersionNamer namer)
      : request_(call.request),
        prompt_ids_(call.chat.prompt_ids),
        namer_(std::move(namer)),
        choice_(call.chat.reading, call.chat.requests.front()),
        tokenizer_(*call.chat.reading->model->tokenizer),
        writer_(form_of(call), call.request.tools, logprobs_of()) {}

  std::vector<ServerEvent> events_of_beginning() override {
    return std::exchange(has_begun_, true) ? std::vector<ServerEvent>() : writer_.begin();
  }

  std::vector<ServerEvent> events_of(const GenerateUpdate& update) override {
    std::vector<ServerEvent> events = events_of_beginning();
    append(events, writer_.add(choice_.add(update)));
    if (choice_.finish() && !is_http_error(choice_.finish()))
      append(events, writer_.finish(ending()));
    return events;
  }

  std::vector<ServerEvent> events_of_failure(const ApiError& error) override {
    ResponsesEnd failed = ending();
    failed.outcome = Outcome::kFailed;
    failed.error_code = code_of(error);
    failed.error_message = error.what();
    return writer_.finish(failed);
  }

  json::object whole() const override { return writer_.response(); }
  const ChatChoice& choice() const override { return choice_; }

 private:
  static ResponsesForm form_of(const ResponsesCall& call) {
    ResponsesForm form = call.request.answer;
    form.id = make_rid();
    form.created_at = std::time(nullptr);
    return form;
  }

  ResponsesWriter::LogprobsOf logprobs_of() const {
    if (!request_.form.returns_logprobs) return nullptr;
    return [this](text::FedRange range) {
      return chat_logprob_entries(choice_.tokens(), range.first, range.last,
                                  {.num_top = request_.form.num_top_logprobs}, tokenizer_);
    };
  }

  Outcome outcome() const {
    const std::string_view word = choice_.finish_word();
    return word == "length"  ? Outcome::kCutByLength
           : word == "abort" ? Outcome::kAborted
                             : Outcome::kCompleted;
  }

  ResponsesEnd ending() const {
    const GenerateUpdate& last = choice_.last_update();
    const auto num_output = static_cast<std::int64_t>(choice_.tokens().ids.size());
    ResponsesEnd end{.outcome = outcome()};
    end.usage = {{"input_tokens", last.prompt_tokens},
                 {"input_tokens_details",
                  {{"cached_tokens", last.cached_tokens}, {"cache_write_tokens", 0}}},
                 {"output_tokens", num_output},
                 {"output_tokens_details", {{"reasoning_tokens", choice_.num_reasoning_tokens()}}},
                 {"total_tokens", last.prompt_tokens + num_output}};
    end.metadata = request_.metadata;
    for (auto& member : training_fields(choice_, request_.form, prompt_ids_, namer_))
      end.metadata[member.key()] = std::move(member.value());
    if (!request_.warnings.empty()) end.metadata["warnings"] = json::value_from(request_.warnings);
    return end;
  }

  /// Codex tries again but for codes that it knows.
  static std::string code_of(const ApiError& error) {
    const json::object told = openai_error(error);
    return std::string(told.at("error").at("code").get_string());
  }

  const ResponsesRequest& request_;
  const std::vector<TokenId> prompt_ids_;
  const VersionNamer namer_;
  ChatChoice choice_;
  const text::Tokenizer& tokenizer_;
  ResponsesWriter writer_;
  bool has_begun_ = false;
};

}  // namespace

std::unique_ptr<ProtocolAnswer> make_responses_answer(const ResponsesCall& call,
                                                      VersionNamer namer) {
  return std::make_unique<ResponsesAnswer>(call, std::move(namer));
}

}  // namespace slime::engine
