#include "gateway/health_checks.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

#include "gateway/json_bodies.h"

namespace slime::gateway {
namespace {

constexpr std::chrono::milliseconds kLook{50};

}  // namespace

HealthChecks::HealthChecks(const HealthConfig& config, Workers& workers)
    : config_(config), workers_(workers) {
  if (!config_.is_on) return;
  call_.request.method = "GET";
  call_.request.target = config_.path;
  call_.timeout = config_.timeout;
  boost::asio::co_spawn(context_, look_around(), boost::asio::detached);
  thread_ = std::jthread([this] { context_.run(); });
}

HealthChecks::~HealthChecks() { context_.stop(); }

net::Task<void> HealthChecks::look_around() {
  boost::asio::steady_timer timer(context_);
  for (;;) {
    for (Workers::View& worker : workers_.due_for_check())
      boost::asio::co_spawn(context_, look_at(std::move(worker)), boost::asio::detached);
    timer.expires_after(kLook);
    co_await timer.async_wait(boost::asio::use_awaitable);
  }
}

net::Task<void> HealthChecks::look_at(Workers::View worker) {
  const Expected<net::HttpResponse> answer =
      co_await call_worker(call_, worker.address, cancellation_);
  std::optional<std::string> problem;
  if (!answer) {
    problem = answer.error().message;
  } else if (answer->status != 200) {
    problem = fmt::format("{} answers {}", config_.path, answer->status);
  }
  // Before it gets its first request.
  if (!problem && !worker.is_healthy) co_await ask_for_models(worker);
  workers_.note_check(worker.id, problem);
}

net::Task<void> HealthChecks::ask_for_models(Workers::View worker) {
  WorkerCall call{.request = {.method = "GET", .target = "/v1/models"}, .timeout = config_.timeout};
  const Expected<net::HttpResponse> answer =
      co_await call_worker(call, worker.address, cancellation_);
  if (!answer || answer->status != 200) co_return;
  if (auto models = models_in(answer->body)) workers_.note_models(worker.id, std::move(*models));
}

}  // namespace slime::gateway
