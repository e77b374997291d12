#include "engine/http/server.h"

#include "engine/http/router_routes.h"

namespace slime::engine {

ApiServer::ApiServer(EngineClient& engine, const ServedModel& model, net::HttpServerConfig http,
                     ApiOptions options)
    : state_(engine, model, std::move(options)), http_(std::move(http), make_routes(state_)) {}

ApiServer::~ApiServer() {
  stop(std::chrono::milliseconds(0));
  state_.join();
}

std::vector<net::HttpRoute> ApiServer::make_routes(ApiState& state) {
  std::vector<net::HttpRoute> routes;
  add_generate_routes(state, routes);
  add_token_routes(state, routes);
  add_responses_routes(state, routes);
  add_anthropic_routes(state, routes);
  add_openai_routes(state, routes);
  add_control_routes(state, routes);
  add_adapter_routes(state, routes);
  add_weights_routes(state, routes);
  add_weight_tensor_routes(state, routes);
  add_profile_routes(state, routes);
  add_information_routes(state, routes);
  add_text_routes(state, routes);
  add_other_routes(routes);
  add_router_routes(state, routes);
  add_session_routes(state, routes);
  return routes;
}

}  // namespace slime::engine
