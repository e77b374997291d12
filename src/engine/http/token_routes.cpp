/// POST /inference/v1/generate: vLLM's token route, whole answers and streams.

#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "core/json.h"
#include "engine/http/abort_status.h"
#include "engine/http/api_error_response.h"
#include "engine/http/api_state.h"
#include "engine/http/protocol_answer.h"
#include "engine/http/protocol_exchange.h"
#include "engine/http/token_route_request.h"
#include "engine/http/token_route_response.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::engine {
namespace {

/// An entry of a log-prob has about fifty characters.
constexpr ResponseCost kCost{.token = 48, .log_prob = 128, .top = 128};

/// {"request_id":"a","output_mode":"tokens"
std::string begin_object(const TokenRouteCall& call) {
  std::string out = "{\"request_id\":";
  append_json_string(out, call.request_id);
  out += call.returns_text ? ",\"output_mode\":\"text\"" : ",\"output_mode\":\"tokens\"";
  return out;
}

class TokenRouteAnswer final : public ProtocolAnswer {
 public:
  /// `state` and `call`, but for its requests, outlive the object.
  TokenRouteAnswer(const ApiState& state, const TokenRouteCall& call)
      : call_(call),
        name_version_([&state](WeightVersion version) { return state.versions.name_of(version); }) {
    if (call.returns_prompt_ids) prompt_ids_ = call.requests.front().input_ids;
    choices_.reserve(call.requests.size());
    for (std::size_t i = 0; i < call.requests.size(); ++i)
      choices_.emplace_back(call, i, state.model);
  }

  void add(std::size_t index, const GenerateUpdate& update) override {
    choices_[index].add(update);
  }

  const FinishReason* failure() const override {
    for (const TokenRouteChoice& choice : choices_) {
      if (is_http_error(choice.totals().finish)) return &*choice.totals().finish;
    }
    return nullptr;
  }

  std::string body() override {
    std::string out = begin_object(call_);
    out += ",\"model\":";
    append_json_string(out, call_.model);
    out += fmt::format(",\"created\":{},\"usage\":", std::time(nullptr));
    out += json_text(usage_of(choices_));
    append_prompt_ids(out);
    if (call_.num_prompt_logprobs >= 0) {
      out += ",\"prompt_logprobs\":";
      choices_.front().append_prompt_logprobs(out);
    }
    out += ",\"choices\":[";
    for (TokenRouteChoice& choice : choices_) {
      choice.append_to(out, name_version_);
      out += ',';
    }
    out.back() = ']';
    return out + "}";
  }

  std::vector<ServerEvent> begin() override { return {}; }

  std::vector<ServerEvent> next() override {
    std::vector<std::string> frames;
    for (TokenRouteChoice& choice : choices_) {
      if (!choice.has_news()) continue;
      std::string frame = begin_object(call_);
      if (!std::exchange(has_begun_, true)) append_prompt_ids(frame);
      frame += ",\"choices\":[";
      choice.append_to(frame, name_version_);
      frame += ']';
      if (call_.continuous_usage) frame += ",\"usage\":" + json_text(usage_of(choices_));
      frame += '}';
      frames.push_back(std::move(frame));
    }
    return unnamed_events(std::move(frames));
  }

  std::vector<ServerEvent> end() override {
    std::vector<std::string> frames;
    if (call_.includes_usage)
      frames.push_back(begin_object(call_) +
                       ",\"choices\":[],\"usage\":" + json_text(usage_of(choices_)) + "}");
    frames.emplace_back("[DONE]");
    return unnamed_events(std::move(frames));
  }

  std::vector<ServerEvent> fail(const ApiError& error) override {
    return unnamed_events({json_text(openai_error(error))});
  }

 private:
  void append_prompt_ids(std::string& out) const {
    if (call_.returns_prompt_ids)
      out += ",\"prompt_token_ids\":" + json_text(json::value_from(prompt_ids_));
  }

  const TokenRouteCall& call_;
  const std::function<std::string(WeightVersion)> name_version_;
  std::vector<TokenId> prompt_ids_;  // only when they are returned
  std::vector<TokenRouteChoice> choices_;
  bool has_begun_ = false;  // a frame was made
};

Task<void> generate(ApiState& state, HttpExchange& exchange) {
  std::optional<TokenRouteCall> call =
      co_await read_call(state, exchange, parse_token_route_call, openai_error_response);
  if (!call) co_return;
  TokenRouteAnswer answer(state, *call);
  ProtocolExchange form{
      .streams = call->streams, .cost = kCost, .headers = {}, .refuse = openai_error_response};
  co_await send_answer(state, exchange, answer, std::move(call->requests), std::move(form));
}

}  // namespace

void add_token_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  routes.emplace_back("POST", "/inference/v1/generate", net::RouteClass::kInference,
                      [&state](HttpExchange& exchange) { return generate(state, exchange); });
}

}  // namespace slime::engine

#pragma GCC diagnostic pop
