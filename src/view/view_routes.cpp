#include "view/view_routes.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "report/metrics_json.h"
#include "report/page.h"
#include "report/run_timeline.h"
#include "view/event_stream.h"
#include "view/guarded_route.h"
#include "view/metric_tail.h"
#include "view/run_metrics.h"
#include "view/sample_routes.h"

namespace slime::view {
namespace {

using net::HttpExchange;
using net::HttpRequest;
using net::HttpResponse;

struct PageFile {
  std::string_view name;
  std::string_view type;
};

/// Of src/report/page; what is not here is not served.
constexpr std::string_view kScript = "text/javascript; charset=utf-8";
constexpr auto kPageFiles = std::to_array<PageFile>({
    {"style.css", "text/css; charset=utf-8"},
    {"live.css", "text/css; charset=utf-8"},
    {"icon.svg", "image/svg+xml"},
    {"dom.js", kScript},
    {"plots.js", kScript},
    {"charts.js", kScript},
    {"lanes.js", kScript},
    {"tokens.js", kScript},
    {"state.js", kScript},
    {"feed.js", kScript},
    {"run_list.js", kScript},
    {"samples.js", kScript},
    {"group.js", kScript},
    {"alarm_card.js", kScript},
    {"alarms.js", kScript},
    {"settings.js", kScript},
    {"live.js", kScript},
});

HttpResponse metrics_of(const std::filesystem::path& folder) {
  // First, so that no row is lost that comes meanwhile; one that is told twice does no harm.
  std::string position = tail_position(folder / "metrics.jsonl");
  const report::RunMetrics metrics = metrics_of_run(folder);
  const json::object body{
      {"position", std::move(position)},
      {"num_steps", metrics.num_steps},
      {"times", report::series_json(metrics.times, true)},
      {"metrics", report::metrics_json(metrics)},
      {"problems", json::array(metrics.problems.begin(), metrics.problems.end())}};
  return {.status = 200, .body = json_text(body)};
}

}  // namespace

std::vector<net::HttpRoute> view_routes(RunCatalog& catalog, SampleStore& store) {
  std::vector<net::HttpRoute> routes;
  const auto add_file = [&routes](const std::string& path, std::string_view name,
                                  std::string_view type) {
    routes.push_back(guarded_route(path, [name, type](const HttpRequest&) {
      return HttpResponse{.status = 200,
                          .body = std::string(report::page_file(name)),
                          .content_type = std::string(type)};
    }));
  };
  add_file("/", "live.html", "text/html; charset=utf-8");
  for (const PageFile& file : kPageFiles)
    add_file("/page/" + std::string(file.name), file.name, file.type);
  routes.push_back(guarded_route("/api/runs", [&catalog](const HttpRequest&) {
    return HttpResponse{.status = 200, .body = json_text(catalog.list())};
  }));
  routes.push_back(guarded_route("/api/metrics", [&catalog](const HttpRequest& request) {
    return metrics_of(folder_of_request(catalog, request));
  }));
  routes.push_back(guarded_route("/api/timeline", [&catalog](const HttpRequest& request) {
    std::vector<std::string> ignored;
    return HttpResponse{.status = 200,
                        .body = json_text(report::timeline_json(
                            folder_of_request(catalog, request) / "timeline.jsonl", {}, ignored))};
  }));
  routes.emplace_back(
      "GET", "/api/events", net::RouteClass::kInference,
      [&catalog](HttpExchange& exchange) { return stream_events(catalog, exchange); });
  add_sample_routes(catalog, store, routes);
  return routes;
}

}  // namespace slime::view
