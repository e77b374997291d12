#include "engine/http/api_state.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace slime::engine {
namespace {

constexpr std::size_t kNamesKept = 64;

net::Task<net::HttpResponse> compute(
    const std::function<net::HttpResponse(const net::HttpRequest&)>* answer,
    net::HttpRequest request) {
  co_return (*answer)(request);
}

net::Task<void> compute_and_send(
    ApiState& state, const std::function<net::HttpResponse(const net::HttpRequest&)>& answer,
    net::HttpExchange& exchange) {
  // Completes on this coroutine's strand again; exceptions travel along.
  net::HttpResponse response = co_await boost::asio::co_spawn(
      state.control_threads.get_executor(), compute(&answer, std::move(exchange.request)),
      boost::asio::use_awaitable);
  co_await exchange.send(std::move(response));
}

}  // namespace

VersionNames::VersionNames(std::string of_loaded_checkpoint) {
  names_[0] = std::move(of_loaded_checkpoint);
}

void VersionNames::set(WeightVersion version, std::string name) {
  const std::lock_guard lock(mutex_);
  names_[version] = std::move(name);
  if (names_.size() > kNamesKept) names_.erase(names_.begin());
}

std::string VersionNames::name_of(WeightVersion version) const {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(version);
  return found == names_.end() ? std::to_string(version) : found->second;
}

void ApiCounters::add(const GenerateUpdate& last_update, std::int64_t num_output) {
  ++num_requests;
  if (last_update.finish && last_update.finish->kind == FinishReason::Kind::kAbort) ++num_aborted;
  num_prompt_tokens += last_update.prompt_tokens;
  num_cached_tokens += last_update.cached_tokens;
  num_generated_tokens += num_output;
}

net::HttpHandler answer_on_control_thread(
    ApiState& state, std::function<net::HttpResponse(const net::HttpRequest&)> answer) {
  return [&state, answer = std::move(answer)](net::HttpExchange& exchange) {
    return compute_and_send(state, answer, exchange);
  };
}

}  // namespace slime::engine
