#include "cli/buffer_routes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "core/error.h"
#include "core/field_reader.h"

namespace slime::cli {
namespace {

namespace asio = boost::asio;
using buffer::GivenGroups;
using buffer::RolloutAnswer;
using buffer::RolloutCounts;
using buffer::RolloutStore;
using buffer::WriteReceipt;
using net::HttpExchange;
using net::HttpResponse;
using net::RouteClass;
using net::Task;

constexpr std::size_t kLongestRequestId = 128;
constexpr std::size_t kLongestTask = 256;
constexpr int64_t kLargestGroup = 1'000'000;

/// What the store answers to `submit`, without a thread that waits.
template <typename T>
using Submit = std::function<void(RolloutStore::Done<T>)>;
template <typename T>
Task<RolloutAnswer<T>> answer_of(Submit<T> submit) {
  return asio::async_initiate<decltype(asio::use_awaitable), void(RolloutAnswer<T>)>(
      [](auto handler, const Submit<T>& to_submit) {
        auto executor = asio::prefer(asio::get_associated_executor(handler),
                                     asio::execution::outstanding_work.tracked);
        auto waiting = std::make_shared<decltype(handler)>(std::move(handler));
        to_submit([waiting, executor](RolloutAnswer<T> answer) {
          asio::post(executor, [waiting, answer = std::move(answer)]() mutable {
            std::move (*waiting)(std::move(answer));
          });
        });
      },
      asio::use_awaitable, std::move(submit));
}

HttpResponse refusal_of(const buffer::RolloutRefusal& refusal) {
  switch (refusal.refusal) {
    case buffer::Refusal::kContradicts:
      return net::error_response(409, refusal.message);
    case buffer::Refusal::kDisk:
      return net::error_response(500, refusal.message);
    case buffer::Refusal::kFull:
    case buffer::Refusal::kStopping:
      break;
  }
  HttpResponse response = net::error_response(503, refusal.message);
  response.headers.emplace_back("Retry-After", "5");
  return response;
}

HttpResponse receipt_response(const WriteReceipt& receipt, const std::string& instance) {
  const std::string_view message = receipt.is_new ? "Data has been written to the buffer"
                                                  : "An item of this uid is in the buffer already";
  return {
      .status = 200,
      .body = fmt::format(
          R"({{"success":true,"message":"{}","data":{{"data":[{{"instance_id":{}}}],"meta_info":"write to buffer"}}}})",
          message, instance)};
}

/// An empty body stands for {}.
json::object object_of(const std::string& body) {
  if (body.empty()) return {};
  const json::value value = parse_json(body, "body");
  if (!value.is_object()) throw ConfigError("body: should be a JSON object");
  return value.get_object();
}

Task<void> write_item(RolloutStore& store, HttpExchange& exchange) {
  auto item = buffer::parse_rollout_item(exchange.request.body);
  if (!item) {
    HttpResponse refusal = net::error_response(400, item.error().message);
    co_await exchange.send(std::move(refusal));
    co_return;
  }
  exchange.request.body.clear();
  const std::string instance = item->instance;
  const auto moved = std::make_shared<buffer::RolloutItem>(std::move(*item));
  const Submit<WriteReceipt> submit = [&store, moved](RolloutStore::Done<WriteReceipt> done) {
    store.write(std::move(*moved), std::move(done));
  };
  const RolloutAnswer<WriteReceipt> answer = co_await answer_of<WriteReceipt>(submit);
  HttpResponse response = answer ? receipt_response(*answer, instance) : refusal_of(answer.error());
  co_await exchange.send(std::move(response));
}

/// About what was written since groups were given out last, and which prompts these are of.
json::object meta_info(const GivenGroups& given) {
  const buffer::WrittenSince& written = given.written;
  const auto num_groups = static_cast<double>(written.instances.size());
  json::array finished;
  for (const buffer::RolloutGroup& group : given.groups)
    finished.push_back(parse_json(group.instance, "an instance"));
  const double size = num_groups > 0 ? static_cast<double>(written.num_items) / num_groups : 0;
  const double reward = written.num_rewards > 0
                            ? written.sum_of_rewards / static_cast<double>(written.num_rewards)
                            : 0;
  return {{"total_samples", written.num_items},
          {"num_groups", written.instances.size()},
          {"avg_group_size", size},
          {"avg_reward", reward},
          {"finished_groups", std::move(finished)}};
}

/// Items are texts already: they are not parsed again.
HttpResponse given_response(const GivenGroups& given) {
  std::size_t num_items = 0;
  std::string items;
  for (const buffer::RolloutGroup& group : given.groups) {
    for (const buffer::RolloutItem& item : group.items) {
      if (num_items++ > 0) items += ',';
      items += item.text;
    }
  }
  const std::string message = num_items > 0 ? fmt::format("Successfully read {} items", num_items)
                                            : "No data available to read";
  const std::string meta = num_items > 0 ? json_text(meta_info(given)) : std::string("{}");
  return {.status = 200,
          .body = fmt::format(
              R"({{"success":{},"message":"{}","data":{{"data":[{}],"meta_info":{}}}}})",
              num_items > 0, message, items, meta)};
}

Task<void> give_groups(RolloutStore& store, HttpExchange& exchange) {
  const json::object body = object_of(exchange.request.body);
  const FieldReader fields(body, "");
  const auto max_groups = static_cast<std::size_t>(
      fields.integer("max_groups", 1, kLargestGroup).value_or(kLargestGroup));
  std::string request_id = fields.text("request_id", kLongestRequestId).value_or("");
  const Submit<GivenGroups> submit = [&](RolloutStore::Done<GivenGroups> done) {
    store.take(max_groups, request_id, std::move(done));
  };
  const RolloutAnswer<GivenGroups> answer = co_await answer_of<GivenGroups>(submit);
  HttpResponse response = answer ? given_response(*answer) : refusal_of(answer.error());
  co_await exchange.send(std::move(response));
}

/// The original's clients write numbers as texts.
int64_t count_in(const FieldReader& fields, const json::object& body, std::string_view name) {
  const json::value* value = body.if_contains(name);
  if (value != nullptr && value->is_string()) {
    const std::string_view text = value->get_string();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size() && number >= 1 &&
        number <= kLargestGroup)
      return number;
    throw ConfigError(
        fmt::format("{}: should be a whole number from 1 to {}", name, kLargestGroup));
  }
  return *fields.required().integer(name, 1, kLargestGroup);
}

HttpResponse status_response(const RolloutCounts& counts, BufferGenerator& generator) {
  const json::object status{
      {"task_type", counts.task_type},    {"group_size", counts.group_size},
      {"whole_groups", counts.num_whole}, {"filling_groups", counts.num_filling},
      {"items", counts.num_items},        {"bytes", counts.num_bytes},
      {"groups_given", counts.num_given}, {"generator", generator.state()},
      {"tasks", generator.tasks()}};
  return {.status = 200, .body = json_text(status)};
}

struct StartOrder {
  json::object body;
  std::string task;
  int64_t group_size = 0;
};

/// Throws ConfigError for a task that nobody draws.
StartOrder start_order(const std::string& text, const json::object& tasks) {
  StartOrder order{.body = object_of(text), .task = {}, .group_size = 0};
  const FieldReader fields(order.body, "");
  order.task = *fields.required().text("task_type", kLongestTask);
  order.group_size = count_in(fields, order.body, "num_repeat_per_sample");
  if (tasks.empty() || tasks.contains(order.task)) return order;
  std::vector<std::string> known;
  for (const auto& each : tasks) known.emplace_back(each.key());
  throw ConfigError(fmt::format("task_type {}: no --generator draws it; there are: {}", order.task,
                                fmt::join(known, ", ")));
}

HttpResponse started_response() {
  return {.status = 200, .body = R"({"message":"Rollout started"})"};
}

Task<void> start_rollout(RolloutStore& store, BufferGenerator& generator, HttpExchange& exchange) {
  const StartOrder order = start_order(exchange.request.body, generator.tasks());
  const Submit<RolloutCounts> submit = [&](RolloutStore::Done<RolloutCounts> done) {
    store.begin(order.task, order.group_size, std::move(done));
  };
  const RolloutAnswer<RolloutCounts> answer = co_await answer_of<RolloutCounts>(submit);
  if (answer) generator.start(order.body);
  HttpResponse response = answer ? started_response() : refusal_of(answer.error());
  co_await exchange.send(std::move(response));
}

Task<void> tell_status(RolloutStore& store, BufferGenerator& generator, HttpExchange& exchange) {
  const Submit<RolloutCounts> submit = [&store](RolloutStore::Done<RolloutCounts> done) {
    store.count(std::move(done));
  };
  const RolloutAnswer<RolloutCounts> answer = co_await answer_of<RolloutCounts>(submit);
  HttpResponse response = answer ? status_response(*answer, generator) : refusal_of(answer.error());
  co_await exchange.send(std::move(response));
}

}  // namespace

std::vector<net::HttpRoute> buffer_routes(RolloutStore& store, BufferGenerator& generator) {
  std::vector<net::HttpRoute> routes;
  routes.emplace_back("POST", "/buffer/write", RouteClass::kInference,
                      [&store](HttpExchange& exchange) { return write_item(store, exchange); });
  routes.emplace_back("POST", "/get_rollout_data", RouteClass::kInference,
                      [&store](HttpExchange& exchange) { return give_groups(store, exchange); });
  routes.emplace_back("POST", "/start_rollout", RouteClass::kControl,
                      [&store, &generator](HttpExchange& exchange) {
                        return start_rollout(store, generator, exchange);
                      });
  routes.emplace_back("GET", "/buffer/status", RouteClass::kProbe,
                      [&store, &generator](HttpExchange& exchange) {
                        return tell_status(store, generator, exchange);
                      });
  routes.emplace_back("GET", "/health", RouteClass::kProbe,
                      net::answer_with([](const net::HttpRequest&) {
                        return HttpResponse{.status = 200, .body = R"({"status":"ok"})"};
                      }));
  return routes;
}

}  // namespace slime::cli
