/// POST /generate: SGLang's native route, whole answers and streams.

#include <optional>

#include "core/json.h"
#include "engine/http/abort_status.h"
#include "engine/http/api_error.h"
#include "engine/http/api_state.h"
#include "engine/http/generate_request.h"
#include "engine/http/generate_response.h"
#include "engine/http/protocol_answer.h"
#include "engine/http/protocol_exchange.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::engine {
namespace {

/// A triple has about thirty characters; the array, the object and the body each hold it once.
constexpr ResponseCost kCost{.token = 48, .log_prob = 96, .top = 96};

HttpResponse refuse(const ApiError& error) {
  if (error.status() == 400) return net::error_response(400, error.what());
  return {.status = error.status(), .body = json_text(json::value{{"detail", error.what()}})};
}

std::string error_frame(const ApiError& error) {
  const bool is_client = error.status() == 400;
  return json_text(json::value{{"error",
                                {{"message", error.what()},
                                 {"type", is_client ? "invalid_request_error" : "server_error"},
                                 {"code", error.status()},
                                 {"retryable", !is_client}}}});
}

class GenerateAnswer final : public ProtocolAnswer {
 public:
  GenerateAnswer(const ApiState& state, const GenerateCall& call) : is_list_(call.is_list) {
    ResponseForm form;
    form.returns_text_in_logprobs = call.returns_text_in_logprobs;
    form.returns_prompt_token_ids = call.returns_prompt_token_ids;
    form.is_incremental = call.streams && state.options.incremental_streaming_output;
    form.name_version = [&state](WeightVersion version) {
      return state.versions.name_of(version < 0 ? state.engine.weight_version() : version);
    };
    for (const GenerateRequest& request : call.requests)
      responses_.emplace_back(request, state.model.tokenizer, form);
    has_news_.resize(responses_.size());
  }

  void add(std::size_t index, const GenerateUpdate& update) override {
    responses_[index].add(update);
    has_news_[index] = true;
  }

  const FinishReason* failure() const override {
    for (const GenerateResponse& response : responses_) {
      if (is_http_error(response.finish())) return &*response.finish();
    }
    return nullptr;
  }

  std::string body() override {
    std::string body;
    for (GenerateResponse& response : responses_) {
      body += body.empty() ? "" : ",";
      body += response.to_json();
    }
    return is_list_ ? "[" + body + "]" : body;
  }

  std::vector<ServerEvent> begin() override { return {}; }

  /// One frame per request however many updates it got: frames are cumulative.
  std::vector<ServerEvent> next() override {
    std::vector<std::string> frames;
    for (std::size_t i = 0; i < responses_.size(); ++i) {
      if (!has_news_[i]) continue;
      has_news_[i] = false;
      frames.push_back(responses_[i].to_json(is_list_ ? static_cast<std::int64_t>(i) : -1));
    }
    return unnamed_events(std::move(frames));
  }

  std::vector<ServerEvent> end() override { return unnamed_events({"[DONE]"}); }
  /// SGLang ends its streams alike, whatever was in them.
  std::vector<ServerEvent> fail(const ApiError& error) override {
    return unnamed_events({error_frame(error), "[DONE]"});
  }

 private:
  const bool is_list_;
  std::vector<GenerateResponse> responses_;
  std::vector<bool> has_news_;  // since next()
};

Task<void> generate(ApiState& state, HttpExchange& exchange) {
  std::optional<GenerateCall> call =
      co_await read_call(state, exchange, parse_generate_call, refuse);
  if (!call) co_return;
  GenerateAnswer answer(state, *call);
  ProtocolExchange form{.streams = call->streams, .cost = kCost, .headers = {}, .refuse = refuse};
  co_await send_answer(state, exchange, answer, std::move(call->requests), std::move(form));
}

}  // namespace

void add_generate_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  for (const char* method : {"POST", "PUT"}) {
    routes.emplace_back(method, "/generate", net::RouteClass::kInference,
                        [&state](HttpExchange& exchange) { return generate(state, exchange); });
  }
}

}  // namespace slime::engine

#pragma GCC diagnostic pop
