/// SGLang's routes that have nothing to do here, or whose work this server does not do: accepted, or
/// refused with the reason (501).

#include <array>
#include <string>
#include <string_view>

#include "engine/http/api_state.h"

namespace slime::engine {
namespace {

struct OtherRoute {
  const char* method;
  const char* path;
  RouteClass route_class;
  int status;  // 200 or 501
  std::string_view says;
};

constexpr std::string_view kSessionsSay =
    "sessions are not kept; send the whole prompt, its prefix is cached";
constexpr std::string_view kOtherTasksSay = "this engine generates text and tokens";
constexpr std::string_view kWholeUpdates =
    "an update is one call: /update_weights_from_disk, _from_tensor or _from_distributed";

constexpr auto kRoutes = std::to_array<OtherRoute>({
    {"POST", "/freeze_gc", RouteClass::kControl, 200, "there is no garbage collector"},
    {"POST", "/configure_logging", RouteClass::kControl, 200, "requests are never logged"},
    {"POST", "/set_internal_state", RouteClass::kControl, 501,
     "settings are those of the command line; start the server with others"},
    {"POST", "/slow_down", RouteClass::kControl, 501, "steps are not slowed down"},
    {"POST", "/open_session", RouteClass::kControl, 501, kSessionsSay},
    {"POST", "/close_session", RouteClass::kControl, 501, kSessionsSay},
    {"POST", "/encode", RouteClass::kInference, 501, kOtherTasksSay},
    {"POST", "/classify", RouteClass::kInference, 501, kOtherTasksSay},
    {"POST", "/load_lora_adapter_from_tensors", RouteClass::kWeights, 501,
     "adapters are read from directories: use /load_lora_adapter"},
    {"POST", "/update_weights_from_ipc", RouteClass::kWeights, 501,
     "handles of another process's memory are not taken; use /update_weights_from_distributed or "
     "/update_weights_from_disk"},
    {"POST", "/begin_weight_update", RouteClass::kWeights, 501, kWholeUpdates},
    {"POST", "/end_weight_update", RouteClass::kWeights, 501, kWholeUpdates},
});

net::HttpResponse answer(const OtherRoute& route) {
  if (route.status == 501) return net::error_response(501, route.says);
  return {
      .status = route.status, .body = std::string(route.says) + "\n", .content_type = "text/plain"};
}

}  // namespace

void add_other_routes(std::vector<net::HttpRoute>& routes) {
  for (const OtherRoute& route : kRoutes) {
    routes.emplace_back(
        route.method, route.path, route.route_class,
        net::answer_with([&route](const net::HttpRequest&) { return answer(route); }));
  }
}

}  // namespace slime::engine
