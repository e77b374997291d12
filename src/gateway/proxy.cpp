#include "gateway/proxy.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cmath>
#include <random>

#include "gateway/cancellation.h"
#include "gateway/forwarded_head.h"
#include "gateway/upstream_closers.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
// In a unit of several files frames may have fields of types that only one of them knows.
#pragma GCC diagnostic ignored "-Wsubobject-linkage"

namespace slime::gateway {
namespace {

namespace asio = boost::asio;
using net::HttpRequest;
using net::HttpResponse;
using net::HttpUpstream;

/// Answers of a known length up to this are read whole before the first byte goes back: until then
/// another worker can be asked.
constexpr std::uint64_t kHeldAnswer = 256 << 10;
constexpr int kMaxLosses = 2;

/// Of the worker, not of the request: another one may do better.
bool is_of_worker(int status) {
  return status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

/// 501 and 505 say what a server can do, not how it is.
bool is_failure(int status) { return status >= 500 && status != 501 && status != 505; }

std::string make_request_id() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}{:016x}", random(), random());
}

}  // namespace

void ProxyCounters::count_status(int status) {
  const std::lock_guard lock(mutex_);
  ++statuses_[status];
}

std::map<int, int64_t> ProxyCounters::statuses() const {
  const std::lock_guard lock(mutex_);
  return statuses_;
}

bool can_be_repeated(const HttpRequest& request) {
  if (request.method == "GET" || request.method == "HEAD") return true;
  if (request.method != "POST") return false;
  const std::string_view path = request.path;
  return path.starts_with("/v1/") || path == "/generate" || path.starts_with("/inference/v1/") ||
         path == "/tokenize" || path == "/detokenize" || path == "/parse_function_call" ||
         path == "/separate_reasoning" || path == "/encode" || path == "/classify";
}

struct Proxy::Call {
  net::HttpExchange& exchange;
  HttpRequest request;
  RequestFacts facts = {};
  std::string request_id = {};         // made here; empty: the client's is passed on
  std::string request_id_header = {};  // the line of it
  bool can_repeat = false;
  Deadline deadline = {};
  Cancellation cancellation = {};
};

struct Proxy::Attempt {
  enum class End {
    kAnswered,  // or the client is gone: nothing is left to do
    kRefused,   // by a status that another worker may not have; `answer` is held
    kNotSent,   // no connection
    kLost,      // after it was sent, before an answer
    kTimeout,
  };
  End end = End::kAnswered;
  std::string why;
  std::optional<HttpResponse> answer = std::nullopt;
};

Proxy::Proxy(const ProxyConfig& config, Workers& workers)
    : config_(config), workers_(workers), admission_(config.admission) {}

net::Task<void> Proxy::forward(net::HttpExchange& exchange) {
  ++counters_.num_requests;
  Call call{.exchange = exchange, .request = std::move(exchange.request)};
  call.facts = facts_of(call.request);
  call.can_repeat = can_be_repeated(call.request);
  call.deadline = std::chrono::steady_clock::now() + config_.request_timeout;
  const auto has_header = [&](const std::string& name) {
    return call.request.header(name).has_value();
  };
  if (!config_.request_id_headers.empty() &&
      std::ranges::none_of(config_.request_id_headers, has_header)) {
    call.request_id = make_request_id();
    call.request_id_header =
        fmt::format("{}: {}\r\n", config_.request_id_headers.front(), call.request_id);
  }
  // By reference: the callback is taken back when the handler ends, and the call with it.
  exchange.on_disconnect([&call] { call.cancellation.request(); });
  co_await serve(call);
  if (call.cancellation.is_requested()) ++counters_.num_left;
}

net::Task<void> Proxy::serve(Call& call) {
  const Admission::Place place = co_await admission_.enter(call.cancellation);
  if (call.cancellation.is_requested()) co_return;
  if (!place) {
    ++counters_.num_refused;
    counters_.count_status(429);
    HttpResponse refusal =
        net::error_response(429, "the router has as many requests as it may have; try again later");
    co_await call.exchange.send(std::move(refusal));
    co_return;
  }

  std::set<WorkerId> tried;
  int num_retries = 0, num_losses = 0;
  std::optional<HttpResponse> refusal;  // the last one
  std::string why = "no worker is ready";
  int status = 503;
  for (;;) {
    std::optional<Workers::Lease> lease = workers_.choose(call.facts, tried);
    if (!lease) {
      // Of workers that cannot be reached one may come back; one that refused has said its word.
      const bool may_wait = !tried.empty() && !refusal && num_retries < config_.retry.max_retries;
      if (!may_wait) break;
      tried.clear();
      co_await pause(call, num_retries);
      ++num_retries;
      ++counters_.num_retries;
      if (call.cancellation.is_requested()) co_return;
      continue;
    }
    tried.insert(lease->id());
    Attempt attempt = co_await try_worker(call, *lease);
    if (call.cancellation.is_requested() || attempt.end == Attempt::End::kAnswered) co_return;
    why = fmt::format("{}: {}", lease->address().url(), attempt.why);
    if (attempt.end == Attempt::End::kTimeout) {
      status = 504;
      refusal.reset();
      break;
    }
    if (attempt.answer) refusal = std::move(attempt.answer);
    if (attempt.end == Attempt::End::kLost && (!call.can_repeat || ++num_losses >= kMaxLosses)) {
      status = 502;
      refusal.reset();
      break;
    }
    if (num_retries >= config_.retry.max_retries) {
      if (!refusal) status = 502;
      break;
    }
    if (attempt.end != Attempt::End::kNotSent) ++num_retries;  // asking others costs nothing
    ++counters_.num_retries;
  }
  if (!refusal) {
    if (status == 503) ++counters_.num_nowhere;
    refusal = net::error_response(status, why);
  }
  counters_.count_status(refusal->status);
  HttpResponse answer = std::move(*refusal);
  co_await call.exchange.send(std::move(answer));
}

/// A kept connection may have been closed by the worker a moment ago: then a new one is tried, where
/// the request can be repeated. Others get a new one from the beginning.
net::Task<Proxy::Attempt> Proxy::try_worker(Call& call, Workers::Lease& lease) {
  const std::shared_ptr<HttpUpstream> kept = call.can_repeat ? lease.take_connection() : nullptr;
  if (kept != nullptr) {
    Attempt attempt = co_await pass_on(call, lease, kept);
    const bool is_stale = attempt.end == Attempt::End::kLost && !call.cancellation.is_requested();
    if (!is_stale) co_return attempt;
  }
  const std::shared_ptr<HttpUpstream> fresh = HttpUpstream::make(call.exchange.executor());
  {
    const Cancellation::Scope scope(call.cancellation,
                                    [&fresh] { fresh->close("the client is gone"); });
    std::string host = lease.address().host;
    const Expected<void> connected =
        co_await fresh->connect(std::move(host), lease.address().port, config_.connect_timeout);
    if (!connected) {
      if (!call.cancellation.is_requested()) lease.fail();
      // A worker that was there a moment ago may have been lost with the request.
      co_return Attempt{.end = kept ? Attempt::End::kLost : Attempt::End::kNotSent,
                        .why = connected.error().message};
    }
  }
  Attempt attempt = co_await pass_on(call, lease, fresh);
  if (attempt.end == Attempt::End::kLost && !call.cancellation.is_requested()) lease.fail();
  co_return attempt;
}

net::Task<Proxy::Attempt> Proxy::pass_on(Call& call, Workers::Lease& lease,
                                         const std::shared_ptr<HttpUpstream>& upstream) {
  using End = Attempt::End;
  std::optional<Closers> closers;
  closers.emplace(call.cancellation, call.deadline, call.exchange.executor(), upstream);
  const auto lost = [&](const Error& error) {
    const bool is_late = closers->close_at.is_late();
    if (is_late && !call.cancellation.is_requested()) lease.fail();
    return Attempt{.end = is_late ? End::kTimeout : End::kLost, .why = error.message};
  };
  // Nothing closes a connection that another request may have.
  const auto finish = [&](int status) {
    closers.reset();
    if (is_failure(status)) {
      lease.fail();
    } else {
      lease.succeed();
    }
    if (upstream->is_reusable()) lease.keep_connection(upstream);
  };

  const std::string head =
      request_head_for(call.request, lease.address().authority, call.request_id_header);
  const Expected<void> sent = co_await upstream->send(head, call.request.body);
  if (!sent) co_return lost(sent.error());
  Expected<HttpUpstream::Head> answer = co_await upstream->read_head(call.request.method == "HEAD");
  if (!answer) co_return lost(answer.error());

  HttpResponse response{
      .status = answer->status, .content_type = "", .headers = headers_for_client(answer->headers)};
  if (const auto type = net::find_header(answer->headers, "Content-Type"))
    response.content_type = *type;
  const bool names_request = std::ranges::any_of(
      config_.request_id_headers,
      [&](const std::string& name) { return net::find_header(answer->headers, name).has_value(); });
  if (!call.request_id.empty() && !names_request)
    response.headers.emplace_back(config_.request_id_headers.front(), call.request_id);
  const bool is_held = answer->length ? *answer->length <= kHeldAnswer : answer->status >= 400;
  const bool is_bodiless = call.request.method == "HEAD";

  if (is_held && !is_bodiless) {
    for (;;) {
      const Expected<std::string> piece = co_await upstream->read_some();
      if (!piece) co_return lost(piece.error());
      if (piece->empty()) break;
      if (response.body.size() + piece->size() > kHeldAnswer)
        co_return lost(Error{"an error of more than 256 KiB"});
      response.body += *piece;
    }
    finish(response.status);
    if (is_of_worker(response.status) && call.can_repeat) {
      std::string why = fmt::format("answers {}", response.status);
      co_return Attempt{.end = End::kRefused, .why = std::move(why), .answer = std::move(response)};
    }
    counters_.count_status(response.status);
    co_await call.exchange.send(std::move(response));
    co_return Attempt{};
  }

  counters_.count_status(response.status);
  const int status = response.status;
  co_await call.exchange.begin_body(std::move(response), answer->length);
  for (;;) {
    Expected<std::string> piece = co_await upstream->read_some();
    if (call.cancellation.is_requested()) co_return Attempt{};
    if (!piece) {  // the client sees that the end is missing
      ++counters_.num_cut;
      lease.fail();
      co_return Attempt{};
    }
    if (piece->empty()) break;
    co_await call.exchange.write_body(std::move(*piece));
  }
  finish(status);
  co_await call.exchange.end_body();
  co_return Attempt{};
}

/// Longer each time, and not of all requests at once.
net::Task<void> Proxy::pause(Call& call, int num_retries) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  const RetryConfig& retry = config_.retry;
  const double factor = std::pow(retry.pause_factor, num_retries);
  const double shift = std::uniform_real_distribution<>(-retry.jitter, retry.jitter)(random);
  const double longest = static_cast<double>(retry.longest_pause.count());
  const double wait =
      std::min(longest, static_cast<double>(retry.first_pause.count()) * factor) * (1 + shift);
  asio::steady_timer timer(call.exchange.executor(),
                           std::chrono::milliseconds(static_cast<int64_t>(wait)));
  const Cancellation::Scope scope(call.cancellation, [&timer] { timer.cancel(); });
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace slime::gateway
