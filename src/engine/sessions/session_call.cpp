#include "engine/sessions/session_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "engine/chat/chat_choice.h"
#include "engine/chat/chat_model.h"
#include "engine/chat/chat_prompt.h"
#include "engine/chat/messages.h"
#include "engine/http/api_error.h"
#include "engine/http/generate_request.h"
#include "engine/sessions/turn_tail.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

/// Of tools and options: what else than the messages a prompt depends on.
TextKey offer_of(json::object options) {
  options.erase("add_generation_prompt");
  options.erase("continue_final_message");
  return key_of(canonical_json(json::value(std::move(options))));
}

json::object message_of(const text::Message& parts) {
  json::object message{{"role", "assistant"}, {"content", parts.content}};
  if (!parts.reasoning.empty()) message["reasoning_content"] = parts.reasoning;
  json::array calls;
  for (const text::ToolCall& call : parts.calls) {
    calls.push_back({{"id", call.id},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

/// The control token that ended the output, as text. A limit may fall on the end itself.
std::string end_mark_of(const ChatChoice& choice, const ServedModel& model,
                        const std::vector<std::string>& end_marks) {
  const std::vector<TokenId>& ids = choice.tokens().ids;
  const FinishReason& finish = *choice.finish();
  if (ids.empty() || std::holds_alternative<std::string>(finish.matched)) return {};
  const std::string last = model.tokenizer->decode(std::span(ids).last(1), false);
  if (std::ranges::find(end_marks, last) == end_marks.end()) return {};
  const auto* matched = std::get_if<TokenId>(&finish.matched);
  if (matched != nullptr) return *matched == ids.back() ? last : std::string();
  const auto& special = model.tokenizer->special_tokens();
  const auto eos = special.find("eos_token");
  return eos != special.end() && eos->second == last ? last : std::string();
}

bool is_cut_off(const ChatChoice& choice) {
  const std::string_view word = choice.finish_word();
  return word == "length" || word == "abort";
}

}  // namespace

SessionCall::SessionCall(std::shared_ptr<Session> session) : session_(std::move(session)) {
  if (!session_->enter()) {
    throw ApiError({.status = 403, .code = "session_closed"},
                   "the session " + session_->name() + " is closed");
  }
}

SessionCall::~SessionCall() { session_->leave(std::chrono::steady_clock::now()); }

void SessionCall::begin(ChatRequest& request) {
  const SessionOptions& options = session_->options();
  for (const auto& [name, value] : options.template_options)
    request.template_options.emplace(name, value);
  request.engine.return_logprob = true;
  // Of tokens that a grammar binds; a nucleus is what they were drawn from.
  request.engine.return_free_logprobs = !options.keeps_top_p_ids;
  request.engine.return_top_p_token_ids = options.keeps_top_p_ids;
  request.engine.return_top_p_log_probs = options.keeps_top_p_log_probs;
  request.engine.rid = session_->rid_prefix() + make_rid();
  if (options.max_new_tokens > 0) {
    request.max_tokens =
        std::min(request.max_tokens.value_or(options.max_new_tokens), options.max_new_tokens);
  }
}

void SessionCall::read_messages(const ChatRequest& request, const json::object& options) {
  messages_ = request.messages;
  offer_ = offer_of(options);
  if (!request.continues_final_message || messages_.empty()) return;
  // The answer is the last message and what is sampled behind it.
  const std::vector<MessageUnit> units = units_of(messages_, Joining::kAllButAssistants);
  if (!units.back().is_assistant) return;
  const json::value* content = messages_.back().get_object().if_contains("content");
  if (content != nullptr && content->is_string()) prefill_ = content->get_string();
  messages_.pop_back();
}

std::optional<ChatPrompt> SessionCall::continued(const ChatRequest& request,
                                                 const json::object& options) {
  read_messages(request, options);
  if (request.continues_final_message) return std::nullopt;
  std::optional<Session::Recognised> known =
      session_->find(messages_, offer_, !session_->options().keeps_thoughts);
  if (!known) return std::nullopt;
  if (!session_->options().keeps_thoughts && drops_thoughts(request, *known, options))
    return std::nullopt;
  const MessageUnit& unit = known->found.unit;
  json::array messages(messages_.begin(),
                       messages_.begin() + static_cast<std::ptrdiff_t>(unit.first));
  messages.push_back(joined_message(messages_, unit));
  messages.insert(messages.end(), messages_.begin() + static_cast<std::ptrdiff_t>(unit.end),
                  messages_.end());
  TurnTail turn_tail(model(), session_->end_marks(), messages, unit.first, options);
  std::optional<std::string> tail = turn_tail.text_behind(known->end_mark);
  if (!tail) return std::nullopt;
  ChatPrompt prompt{.ids = std::move(known->tokens), .text = {}};
  const std::vector<TokenId> more =
      tokens_behind(model(), known->last_output, known->end_mark, *tail);
  prompt.ids.insert(prompt.ids.end(), more.begin(), more.end());
  prompt.text = *std::move(tail);
  found_ = std::move(known->found);
  return prompt;
}

/// Whether the template leaves out a thought of the turns that were recognised, were it given all of them.
bool SessionCall::drops_thoughts(const ChatRequest& request, const Session::Recognised& recognised,
                                 const json::object& options) const {
  json::array messages;
  std::vector<std::string> thoughts;
  std::size_t at = 0;
  for (std::size_t i = 0; i < recognised.messages.size(); ++i) {
    const MessageUnit& unit = recognised.found.turns[i].second;
    for (; at < unit.first; ++at) messages.push_back(request.messages[at]);
    const json::object& turn = recognised.messages[i];
    if (const json::value* thought = turn.if_contains("reasoning_content"))
      thoughts.emplace_back(thought->get_string());
    messages.push_back(turn);
    at = unit.end;
  }
  if (thoughts.empty()) return false;
  for (; at < request.messages.size(); ++at) messages.push_back(request.messages[at]);
  std::vector<std::string> problems;
  const json::array fitting = normalised_messages(messages, model().chat->traits(), problems);
  if (!problems.empty()) return true;
  try {
    const std::string whole = model().chat->render(fitting, options);
    return std::ranges::any_of(thoughts, [&](const std::string& thought) {
      return whole.find(thought) == std::string::npos;
    });
  } catch (const ConfigError&) {  // the whole prompt will say why
    return true;
  }
}

void SessionCall::prepared(ChatCall& call) {
  session_->set_refused_behind(nullptr);
  if (!session_->take_turn()) {
    session_->set_refused_behind(found_ ? found_->node->turn : nullptr);
    throw ApiError({.status = 400, .code = "turn_limit"},
                   fmt::format("the session {} has had its {} turns", session_->name(),
                               session_->options().max_turns));
  }
  prompt_ids_ = call.prompt_ids;
  const int64_t room = model().context_length - static_cast<int64_t>(prompt_ids_.size());
  for (GenerateRequest& request : call.requests) {
    request.sampling.max_new_tokens = std::min(request.sampling.max_new_tokens, room);
    request.sampling.min_new_tokens =
        std::min(request.sampling.min_new_tokens, request.sampling.max_new_tokens);
  }
}

void SessionCall::refused_for_length() {
  session_->set_refused_behind(found_ ? found_->node->turn : nullptr);
}

void SessionCall::record(std::span<const ChatChoice* const> choices) {
  for (const ChatChoice* choice : choices) record(*choice);
}

void SessionCall::record(const ChatChoice& choice) {
  if (choice.tokens().ids.empty()) return;
  SessionTurn turn;
  turn.context = prompt_ids_;
  turn.output = choice.tokens().ids;
  // Training computes the distribution without a grammar, or that of the nuclei.
  const ChoiceTokens& tokens = choice.tokens();
  const bool is_free = tokens.num_constrained > 0 && !session_->options().keeps_top_p_ids;
  turn.log_probs = is_free ? tokens.free_log_probs : tokens.log_probs;
  turn.top_p_ids = tokens.top_p_ids;
  turn.top_p_counts = tokens.top_p_counts;
  turn.top_p_log_probs = tokens.top_p_log_probs;
  turn.num_constrained = tokens.num_constrained;
  turn.versions = choice.versions();
  turn.finish = *choice.finish();
  turn.end_mark = end_mark_of(choice, model(), session_->end_marks());
  turn.message = message_of(choice.message());
  turn.is_ill_formed = choice.num_call_errors() > 0;
  turn.is_cut_off = is_cut_off(choice);
  Session::Said said{.messages = messages_, .offer = offer_, .also = {}};
  const std::string& content = choice.message().content;
  if (!prefill_.empty()) said.also.push_back(prefill_ + content);
  if (const auto* stop = std::get_if<std::string>(&turn.finish.matched))
    said.also.push_back(prefill_ + content + *stop);
  records_.push_back(session_->record(std::move(turn), said, found_));
}

void SessionCall::forget() {
  for (const Session::Record& record : records_) session_->forget(record);
  records_.clear();
}

}  // namespace slime::engine
