#include "engine/chat/chat_choice.h"

#include <charconv>
#include <iterator>
#include <utility>

#include "engine/http/generate_request.h"
#include "engine/request_parts.h"
#include "text/messages/call_ids.h"

namespace slime::engine {
namespace {

/// New at each call.
uint64_t random_seed() {
  const std::string digits = make_rid();
  uint64_t seed = 0;
  std::from_chars(digits.data(), digits.data() + 16, seed, 16);
  return seed;
}

text::MessageRequest parser_request(const ChatReading& reading) {
  const text::CallFormat* calls = reading.format->calls();
  return {.tools = &reading.schemas,
          .reads_calls = reading.reads_calls,
          .reads_reasoning = reading.reads_reasoning,
          .parallel_calls = reading.parallel_calls,
          .stream_reasoning = reading.streams_reasoning,
          .tail = reading.tail,
          .make_id = text::make_call_ids(calls == nullptr ? text::CallIds::kOpenAi : calls->ids,
                                         random_seed(), reading.num_earlier_calls)};
}

}  // namespace

ChatChoice::ChatChoice(std::shared_ptr<const ChatReading> reading, const GenerateRequest& request)
    : reading_(std::move(reading)),
      text_(request.sampling, request.sampling.skip_special_tokens, *reading_->model->tokenizer),
      parser_(*reading_->format, parser_request(*reading_)) {}

std::vector<text::MessageEvent> ChatChoice::add(const GenerateUpdate& update) {
  tokens_.add(update);
  versions_.insert(versions_.end(), update.versions.begin(), update.versions.end());
  take_totals(last_, update);

  std::vector<text::MessageEvent> events;
  const auto add_events = [&](std::vector<text::MessageEvent> more) {
    events.insert(events.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
  };
  for (const TokenText::Piece& piece : text_.add(update.output_ids, update.finish))
    add_events(piece.id < 0 ? parser_.feed(piece.text) : parser_.feed(piece.id, piece.text));
  if (update.finish) {
    const bool is_whole = update.finish->kind == FinishReason::Kind::kStop || wants_stop();
    add_events(parser_.finish(is_whole ? text::OutputEnd::kStop : text::OutputEnd::kCut));
  }
  message_.add(events);
  return events;
}

std::string_view ChatChoice::finish_word() const {
  if (!last_.finish) return {};
  const std::size_t num_calls = message_.calls.size();
  switch (last_.finish->kind) {
    case FinishReason::Kind::kStop:
      return text::finish_reason("stop", num_calls);
    case FinishReason::Kind::kLength:
      return text::finish_reason(wants_stop() ? "stop" : "length", num_calls);
    case FinishReason::Kind::kAbort:
      return text::finish_reason(wants_stop() ? "stop" : "abort", num_calls);
  }
  return {};
}

int64_t ChatChoice::num_reasoning_tokens() const {
  const text::FedRange range = message_.reasoning_tokens;
  return static_cast<int64_t>(std::min(range.last, tokens_.ids.size()) -
                              std::min(range.first, tokens_.ids.size()));
}

}  // namespace slime::engine
