#include "gateway/worker_calls.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "gateway/forwarded_head.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
// In a unit of several files frames may have fields of types that only one of them knows.
#pragma GCC diagnostic ignored "-Wsubobject-linkage"

namespace slime::gateway {
namespace {

namespace asio = boost::asio;
using net::HttpResponse;
using net::HttpUpstream;

constexpr std::chrono::milliseconds kConnectLimit{5'000};

/// What several calls fill, and who waits for the last of them.
struct Answers {
  std::vector<WorkerAnswer> answers;
  std::size_t num_open = 0;
  asio::steady_timer all_here;
};

}  // namespace

net::Task<Expected<HttpResponse>> call_worker(const WorkerCall& call, WorkerAddress worker,
                                              Cancellation& cancellation) {
  const auto strand = co_await asio::this_coro::executor;
  const std::shared_ptr<HttpUpstream> upstream = HttpUpstream::make(strand);
  const Cancellation::Scope scope(cancellation, [upstream] { upstream->close("cancelled"); });
  asio::steady_timer deadline(strand, call.timeout);
  deadline.async_wait([upstream](boost::system::error_code error) {
    if (!error) upstream->close("no answer in time");
  });
  std::string host = worker.host;
  const Expected<void> connected = co_await upstream->connect(
      std::move(host), worker.port, std::min(call.timeout, kConnectLimit));
  if (!connected) co_return tl::make_unexpected(connected.error());
  const std::string head =
      request_head_for(call.request, worker.authority, "Connection: close\r\n");
  const Expected<void> sent = co_await upstream->send(head, call.request.body);
  if (!sent) co_return tl::make_unexpected(sent.error());
  const Expected<HttpUpstream::Head> answer = co_await upstream->read_head(false);
  if (!answer) co_return tl::make_unexpected(answer.error());
  HttpResponse response{
      .status = answer->status, .content_type = "", .headers = headers_for_client(answer->headers)};
  if (const auto type = net::find_header(answer->headers, "Content-Type"))
    response.content_type = *type;
  for (;;) {
    const Expected<std::string> piece = co_await upstream->read_some();
    if (!piece) co_return tl::make_unexpected(piece.error());
    if (piece->empty()) break;
    if (response.body.size() + piece->size() > call.answer_limit_bytes)
      co_return failure(fmt::format("an answer of more than {} bytes", call.answer_limit_bytes));
    response.body += *piece;
  }
  co_return response;
}

net::Task<std::vector<WorkerAnswer>> call_workers(const WorkerCall& call,
                                                  std::vector<Workers::View> workers,
                                                  Cancellation& cancellation) {
  const auto strand = co_await asio::this_coro::executor;
  const auto all = std::make_shared<Answers>(
      Answers{.answers = {}, .num_open = workers.size(), .all_here = asio::steady_timer(strand)});
  all->all_here.expires_at(asio::steady_timer::time_point::max());
  for (Workers::View& worker : workers)
    all->answers.push_back({std::move(worker), failure("was not asked")});
  for (std::size_t i = 0; i < all->answers.size(); ++i) {
    asio::co_spawn(strand, call_worker(call, all->answers[i].worker.address, cancellation),
                   [all, i](std::exception_ptr thrown, Expected<HttpResponse> response) {
                     if (!thrown) all->answers[i].response = std::move(response);
                     if (--all->num_open == 0) all->all_here.cancel();
                   });
  }
  boost::system::error_code ignored;
  while (all->num_open > 0) {
    co_await all->all_here.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  co_return std::move(all->answers);
}

}  // namespace slime::gateway
