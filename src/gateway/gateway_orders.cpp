// The half of the gateway that gives orders to all workers.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "gateway/gateway.h"
#include "gateway/worker_calls.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::gateway {
namespace {

using net::HttpExchange;
using net::HttpRequest;
using net::HttpResponse;
using net::RouteClass;

/// What all workers are told. Half of it would be worse than nothing, so none is given again, and
/// the answer is an error when one of them answers with one.
struct OrderRoute {
  const char* path;
  RouteClass route_class;
};
constexpr auto kOrders = std::to_array<OrderRoute>({
    {"/abort_request", RouteClass::kControl},
    {"/flush_cache", RouteClass::kControl},
    {"/pause_generation", RouteClass::kControl},
    {"/continue_generation", RouteClass::kControl},
    {"/release_memory_occupation", RouteClass::kControl},
    {"/resume_memory_occupation", RouteClass::kControl},
    {"/start_profile", RouteClass::kControl},
    {"/stop_profile", RouteClass::kControl},
    {"/update_weights_from_disk", RouteClass::kWeights},
    {"/update_weight_version", RouteClass::kWeights},
    {"/pull_weights", RouteClass::kWeights},
    {"/post_process_weights", RouteClass::kWeights},
});

/// In these each worker has a part of its own: a rank in a group, or memory of its host.
constexpr auto kNotForAll =
    std::to_array<const char*>({"/init_weights_update_group", "/destroy_weights_update_group",
                                "/update_weights_from_distributed", "/update_weights_from_tensor",
                                "/update_weights_from_ipc"});

/// Whom an abort concerns: who has the request, or everybody where nobody is known to have it.
std::vector<Workers::View> aborting(const Workers& workers, const HttpRequest& request) {
  std::vector<Workers::View> views = workers.list();
  std::erase_if(views, [](const Workers::View& each) { return !each.is_healthy; });
  const RequestFacts facts = facts_of(request);
  const std::vector<MemberSpan> members = top_members(request.body);
  const bool is_for_all = std::ranges::any_of(members, [](const MemberSpan& each) {
    return each.name == "abort_all" && each.value == "true";
  });
  std::set<WorkerId> concerned;
  for (const std::string& rid : facts.rids) {
    if (!rid.empty()) concerned.merge(workers.with_rid(rid));
  }
  if (!is_for_all && !concerned.empty())
    std::erase_if(views, [&](const Workers::View& each) { return !concerned.contains(each.id); });
  return views;
}

/// The answer of the first that failed, else of the first.
HttpResponse of_all(std::vector<WorkerAnswer>& answers) {
  for (WorkerAnswer& each : answers) {
    if (!each.response) {
      return net::error_response(
          502, fmt::format("{}: {}; other workers may have done it", each.worker.address.url(),
                           each.response.error().message));
    }
    if (each.response->status >= 400) {
      each.response->headers.emplace_back("x-slime-worker", each.worker.address.url());
      return std::move(*each.response);
    }
  }
  return std::move(*answers.front().response);
}

}  // namespace

void Gateway::add_order_routes(std::vector<net::HttpRoute>& routes) {
  for (const OrderRoute& each : kOrders) {
    routes.emplace_back("POST", each.path, each.route_class,
                        [this](HttpExchange& exchange) { return order(exchange); });
  }
  routes.emplace_back("GET", "/flush_cache", RouteClass::kControl,
                      [this](HttpExchange& exchange) { return order(exchange); });
  for (const char* path : kNotForAll) {
    routes.emplace_back("POST", path, RouteClass::kWeights,
                        net::answer_with([](const HttpRequest& request) {
                          return net::error_response(
                              501, fmt::format("{}: each worker has a part of its own in this; "
                                               "call the workers (GET /workers)",
                                               request.path));
                        }));
  }
}

net::Task<void> Gateway::order(HttpExchange& exchange) {
  WorkerCall call{.request = std::move(exchange.request), .timeout = config_.proxy.request_timeout};
  std::vector<Workers::View> workers =
      call.request.path == "/abort_request" ? aborting(workers_, call.request) : workers_.list();
  // A client that leaves does not take back what workers have read. It may also leave while the answer is
  // sent, so this lives as long as the handler.
  Cancellation cancellation;
  exchange.on_disconnect([&cancellation] { cancellation.request(); });
  HttpResponse response = net::error_response(503, "there are no workers");
  if (!workers.empty()) {
    std::vector<WorkerAnswer> answers =
        co_await call_workers(call, std::move(workers), cancellation);
    response = of_all(answers);
  }
  co_await exchange.send(std::move(response));
}

}  // namespace slime::gateway
