#include "engine/remote/http_engine.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <future>

#include "core/error.h"
#include "engine/remote/http_engine_running.h"
#include "net/http_client.h"

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
// In a unit of several files frames may have fields of types that only one of them knows.
#pragma GCC diagnostic ignored "-Wsubobject-linkage"

namespace slime::engine {
namespace {

namespace asio = boost::asio;
using Cause = FinishReason::Cause;

constexpr int kMaxFailures = 3;  // of one request in a row, in a server that is healthy
constexpr std::chrono::milliseconds kPauseAfterFailure{200};

Cause cause_of_status(int status) {
  if (status == 429 || status == 503) return Cause::kQueueFull;
  if (status == 507) return Cause::kOutOfMemory;
  return status >= 500 ? Cause::kEngineFailed : Cause::kBadRequest;
}

/// What these servers are not asked for, with the reason; null: nothing of it is in `request`.
const char* why_not_asked(const GenerateRequest& request) {
  if (request.return_routed_experts || request.return_top_p_token_ids)
    return "servers of others tell neither experts nor top-p tokens here";
  if (request.sampling.is_constrained() || request.return_free_logprobs) {
    return "servers of others are not asked for grammars, allowed_token_ids or bad_words here: a "
           "response that goes on elsewhere would begin its grammar anew, and training needs "
           "log-probs without them";
  }
  if (!request.token_ids_logprob.empty())
    return "servers of others are not asked for the log-probs of given tokens here";
  if (!request.adapter.empty()) return "servers of others are not asked for adapters here";
  if (!request.cache_salt.empty())
    return "servers of others are not asked to keep prefixes apart (cache_salt) here";
  if (!request.media.empty()) return "servers of others are asked for text alone here";
  return nullptr;
}

}  // namespace

HttpEngine::HttpEngine(HttpEngineConfig config)
    : config_(std::move(config)), work_(context_.get_executor()), released_(context_) {
  released_.expires_at(asio::steady_timer::time_point::max());
  thread_ = std::jthread([this] { context_.run(); });
}

HttpEngine::~HttpEngine() {
  on_own_thread([this] { lose(Cause::kShuttingDown, "the run has let the server go"); });
  context_.stop();
}

std::string HttpEngine::url() const {
  const bool is_v6 = config_.host.find(':') != std::string::npos;
  return fmt::format("http://{}:{}", is_v6 ? "[" + config_.host + "]" : config_.host, config_.port);
}

void HttpEngine::on_own_thread(std::function<void()> work) const {
  if (is_own_thread()) return work();
  std::promise<void> done;
  asio::post(context_, [&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

RequestHandle HttpEngine::submit(GenerateRequest request, OnUpdate on_update) {
  const RequestHandle handle{++num_requests_};
  auto running = std::make_shared<Running>();
  running->handle = handle;
  running->prompt_tokens = static_cast<int64_t>(request.input_ids.size());
  if (request.rid.empty()) request.rid = fmt::format("request-{}", static_cast<uint64_t>(handle));
  running->request = std::move(request);
  running->on_update = std::move(on_update);
  ++num_open_;
  asio::post(context_, [this, running] {
    open_.emplace(running->handle, running);
    if (why_lost()) return end(*running, lost_reason());
    if (const char* reason = why_not_asked(running->request))
      return end(*running, aborted(Cause::kBadRequest, reason));
    asio::co_spawn(context_, run(running), asio::detached);
  });
  return handle;
}

net::Task<void> HttpEngine::wait_for_release() {
  boost::system::error_code ignored;
  co_await released_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

net::Task<void> HttpEngine::run(RunningPtr running) {
  while (!running->has_ended) {
    if (running->is_aborted) {
      end(*running, aborted(Cause::kRequested, "aborted"));
      co_return;
    }
    if (is_held_) {
      co_await wait_for_release();
      continue;
    }
    if (running->num_parts > 0 && running->request.sampling.max_new_tokens <= 0) {
      end(*running, {.kind = FinishReason::Kind::kLength});
      co_return;
    }
    ++num_parts_;
    const PartEnd part = co_await run_part(running);
    --num_parts_;
    running->upstream.reset();
    if (running->has_ended) co_return;
    if (part != PartEnd::kFailed || running->is_aborted || is_held_) continue;
    if (++running->num_failures >= kMaxFailures) {
      lose(Cause::kEngineLost, fmt::format("{}: {}", url(), running->problem));
      co_return;
    }
    asio::steady_timer pause(context_, kPauseAfterFailure);
    boost::system::error_code ignored;
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

/// kFinished: the caller knows. kAborted: the server has ended it, and somebody here had asked for
/// that.
net::Task<HttpEngine::PartEnd> HttpEngine::run_part(RunningPtr running) {
  GenerateRequest& request = running->request;
  // A further part is a request of its own to the server; the first one may not be gone there yet.
  running->part_rid =
      running->num_parts == 0 ? request.rid : fmt::format("{}+{}", request.rid, running->num_parts);
  ++running->num_parts;
  SglangAnswer answer(request);
  EventSplitter events(config_.frame_limit_bytes);
  const std::shared_ptr<net::HttpUpstream> upstream =
      net::HttpUpstream::make(context_.get_executor());
  running->upstream = upstream;
  std::string host = config_.host;
  const Expected<void> connected =
      co_await upstream->connect(std::move(host), config_.port, config_.connect_limit);
  if (!connected) {
    running->problem = connected.error().message;
    co_return PartEnd::kFailed;
  }
  const std::string body = json_text(sglang_request(request, running->part_rid));
  std::string head = fmt::format(
      "POST /generate HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: "
      "{}\r\nConnection: close\r\n",
      url().substr(7), body.size());
  if (!config_.api_key.empty()) head += "Authorization: Bearer " + config_.api_key + "\r\n";
  head += "\r\n";
  const Expected<void> sent = co_await upstream->send(head, body);
  if (!sent) {
    running->problem = sent.error().message;
    co_return PartEnd::kFailed;
  }
  const auto answered = co_await upstream->read_head(false);
  if (!answered) {
    running->problem = answered.error().message;
    co_return PartEnd::kFailed;
  }
  std::string refusal;  // the body of another answer than 200
  for (;;) {
    const Expected<std::string> piece = co_await upstream->read_some();
    if (running->has_ended) co_return PartEnd::kFinished;
    if (!piece || piece->empty()) {
      running->problem = piece ? "the answer ends before the response does" : piece.error().message;
      if (answered->status == 200 || !piece) co_return PartEnd::kFailed;
      end(*running, aborted(cause_of_status(answered->status),
                            fmt::format("{} answers {}: {}", url(), answered->status,
                                        sglang_error_text(refusal))));
      co_return PartEnd::kFinished;
    }
    if (answered->status != 200) {
      refusal += piece->substr(0, config_.frame_limit_bytes - refusal.size());
      continue;
    }
    try {
      events.add(*piece);
      while (const auto event = events.next()) {
        if (*event == "[DONE]") continue;
        GenerateUpdate update = answer.add(*event);
        ++num_frames_;
        const std::string& version = answer.weight_version();
        if (!update.output_ids.empty() && !expected_version_.empty() && !version.empty() &&
            version != expected_version_) {
          throw ConfigError(fmt::format(
              "the server has weights \"{}\", and the run gave it \"{}\": somebody else changes "
              "them",
              version, expected_version_));
        }
        // An abort that nobody here has asked for is the server's own: it stops, or somebody else
        // aborts.
        const bool is_abort = update.finish && update.finish->kind == FinishReason::Kind::kAbort &&
                              update.finish->cause == Cause::kRequested;
        const bool goes_on = is_abort && !running->is_aborted;
        if (goes_on) running->problem = "the server ended a request: " + update.finish->message;
        if (goes_on) update.finish.reset();
        if (!update.output_ids.empty()) running->num_failures = 0;
        tell(*running, std::move(update));
        if (running->has_ended) co_return PartEnd::kFinished;
        if (goes_on) co_return is_held_ ? PartEnd::kAborted : PartEnd::kFailed;
      }
    } catch (const ConfigError& error) {
      end(*running, aborted(Cause::kEngineFailed, fmt::format("{}: {}", url(), error.what())));
      co_return PartEnd::kFinished;
    }
  }
}

/// The tokens are the caller's from here on, and part of what the next part begins with.
void HttpEngine::tell(Running& running, GenerateUpdate update) {
  GenerateRequest& request = running.request;
  const auto count = static_cast<int64_t>(update.output_ids.size());
  request.input_ids.insert(request.input_ids.end(), update.output_ids.begin(),
                           update.output_ids.end());
  request.num_sampled += count;
  request.sampling.max_new_tokens -= count;
  request.sampling.min_new_tokens = std::max<int64_t>(0, request.sampling.min_new_tokens - count);
  request.logprob_start_len = -1;  // told with the first frame
  if (running.num_parts == 1) running.cached_tokens = update.cached_tokens;
  if (count > 0) update.versions.push_back({version_, count});
  update.rid = request.rid;
  update.prompt_tokens = running.prompt_tokens;
  update.cached_tokens = running.cached_tokens;
  update.num_retractions = running.num_parts - 1;
  update.total_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - running.submitted).count();
  running.has_ended = update.finish.has_value();
  if (running.has_ended) {
    --num_open_;
    open_.erase(running.handle);
  }
  running.on_update(std::move(update));
}

void HttpEngine::end(Running& running, FinishReason finish) {
  if (running.has_ended) return;
  GenerateUpdate last;
  last.finish = std::move(finish);
  tell(running, std::move(last));
}

/// The server may not know the request yet, or no more; whoever waits for its end has a deadline.
void HttpEngine::abort_there(const std::string& rid) {
  net::HttpCall call{.method = "POST",
                     .url = url() + "/abort_request",
                     .body = json_text(json::object{{"rid", rid}}),
                     .timeout = config_.answer_limit};
  if (!config_.api_key.empty())
    call.headers.emplace_back("Authorization", "Bearer " + config_.api_key);
  asio::co_spawn(context_, net::async_http_call(std::move(call)),
                 [](std::exception_ptr, const Expected<net::HttpResponse>&) {});
}

Expected<void> HttpEngine::abort(RequestHandle request) {
  asio::post(context_, [this, request] {
    const auto found = open_.find(request);
    if (found == open_.end()) return;
    const RunningPtr running = found->second;
    running->is_aborted = true;
    if (running->upstream == nullptr) return end(*running, aborted(Cause::kRequested, "aborted"));
    abort_there(running->part_rid);
    // A server that reads the abort before the request goes on with that.
    const auto limit = std::make_shared<asio::steady_timer>(context_, config_.abort_limit);
    limit->async_wait([limit, running](boost::system::error_code error) {
      if (!error && running->upstream != nullptr) running->upstream->close("aborted");
    });
  });
  return {};
}

Expected<void> HttpEngine::abort_prefix(const std::string& prefix) {
  on_own_thread([&] {
    for (const auto& [handle, running] : open_)
      if (running->request.rid.starts_with(prefix)) static_cast<void>(abort(handle));
  });
  return {};
}

std::optional<std::string> HttpEngine::why_lost() const {
  const std::lock_guard lock(mutex_);
  return lost_ ? std::optional(lost_->message) : std::nullopt;
}

FinishReason HttpEngine::lost_reason() const {
  const std::lock_guard lock(mutex_);
  check(lost_.has_value(), "a server that is lost has a reason");
  return *lost_;
}

void HttpEngine::disconnect(const std::string& why) {
  asio::post(context_, [this, why] { lose(Cause::kEngineLost, why); });
}

void HttpEngine::lose(Cause cause, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!lost_) lost_ = aborted(cause, why);
  }
  const FinishReason reason = lost_reason();
  const auto open = open_;
  for (const auto& [handle, running] : open) {
    if (running->upstream != nullptr) running->upstream->close(why);
    end(*running, reason);
  }
  released_.cancel();
}

}  // namespace slime::engine
