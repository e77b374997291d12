#include "view/event_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "view/guarded_route.h"
#include "view/metric_tail.h"

namespace slime::view {
namespace {

namespace asio = boost::asio;
using net::HttpExchange;
using net::HttpResponse;

constexpr std::chrono::seconds kQuiet{15};  // until a comment keeps the stream alive
constexpr int kLooksPerList = 6;

struct Follower {
  std::string run;
  std::filesystem::path metrics;
  std::string position;
};

HttpResponse with_headers(HttpResponse response) {
  for (auto& header : page_headers()) response.headers.push_back(std::move(header));
  return response;
}

/// Nothing when a name is not in the catalog, or there are too many.
std::optional<std::vector<Follower>> followers_of(RunCatalog& catalog, std::string_view after) {
  std::vector<Follower> followers;
  while (!after.empty()) {
    const std::string_view one = after.substr(0, after.find(','));
    after.remove_prefix(std::min(after.size(), one.size() + 1));
    const std::size_t colon = one.rfind(':');
    if (colon == std::string_view::npos || followers.size() == kMostFollowed) return std::nullopt;
    const std::string run(one.substr(0, colon));
    const auto folder = catalog.folder_of(run);
    if (!folder) return std::nullopt;
    followers.push_back({run, *folder / "metrics.jsonl", std::string(one.substr(colon + 1))});
  }
  return followers;
}

/// What is to be sent of a run now: the name of the event and its data; no name: nothing.
std::pair<std::string, std::string> event_of(Follower& follower) {
  TailRows tail = rows_since(follower.metrics, follower.position);
  if (!tail.is_reset && tail.rows.empty()) {
    follower.position = tail.position;
    return {};
  }
  follower.position = tail.position;
  json::object data{{"run", follower.run}, {"position", follower.position}};
  if (!tail.is_reset) data["rows"] = std::move(tail.rows);
  return {tail.is_reset ? "reset" : "rows", json_text(data)};
}

}  // namespace

net::Task<void> stream_events(RunCatalog& catalog, HttpExchange& exchange) {
  if (auto refusal = refusal_of_origin(exchange.request)) {
    HttpResponse response = with_headers(std::move(*refusal));
    co_await exchange.send(std::move(response));
    co_return;
  }
  auto followers =
      followers_of(catalog, exchange.request.query_value("after").value_or(std::string()));
  if (!followers) {
    HttpResponse response = with_headers(net::error_response(
        400, fmt::format("after: should be ID:POSITION of at most {} runs, with commas",
                         kMostFollowed)));
    co_await exchange.send(std::move(response));
    co_return;
  }
  net::HttpHeaders headers = page_headers();
  co_await exchange.begin_events(std::move(headers));
  asio::steady_timer timer(exchange.executor());
  exchange.on_disconnect([&timer] { timer.cancel(); });
  std::string list;
  auto last_write = std::chrono::steady_clock::now();
  for (int look = 0; exchange.is_connected(); ++look) {
    bool has_more = false;
    for (Follower& follower : *followers) {
      auto [name, data] = event_of(follower);
      if (name.empty()) continue;
      has_more = true;
      last_write = std::chrono::steady_clock::now();
      co_await exchange.write_event(std::move(data), std::move(name));
    }
    if (look % kLooksPerList == 0) {
      std::string now = json_text(catalog.list());
      if (now != list) {
        list = now;
        last_write = std::chrono::steady_clock::now();
        co_await exchange.write_event(std::move(now), "runs");
      }
    }
    if (std::chrono::steady_clock::now() - last_write > kQuiet) {
      last_write = std::chrono::steady_clock::now();
      co_await exchange.write_comment("quiet");
    }
    // A reader that is far behind gets the rest without a pause.
    timer.expires_after(has_more ? std::chrono::milliseconds(1) : kLookInterval);
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

}  // namespace slime::view
