#include "engine/http/api_state.h"

#include <boost/asio/post.hpp>

namespace slime::engine {
namespace {

/// An answer is written a moment after its last token: so many updates fit into no moment.
constexpr std::size_t kNamesKept = 4096;

net::Task<void> compute_and_send(
    boost::asio::thread_pool& pool,
    const std::function<net::HttpResponse(const net::HttpRequest&)>& answer,
    net::HttpExchange& exchange) {
  std::function<net::HttpResponse()> work = [&answer, request = std::move(exchange.request)] {
    return answer(request);
  };
  net::HttpResponse response = co_await compute_on(pool, std::move(work));
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

void VersionNames::forget(WeightVersion version) {
  const std::lock_guard lock(mutex_);
  names_.erase(version);
}

std::string VersionNames::name_of(WeightVersion version) const {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(version);
  return found == names_.end() ? std::to_string(version) : found->second;
}

void ApiState::join() {
  control_threads.join();
  weights_thread.join();
  if (end_profile) boost::asio::post(profile_thread, end_profile);
  profile_thread.join();
  parse_threads.join();
}

net::HttpHandler answer_on(boost::asio::thread_pool& pool,
                           std::function<net::HttpResponse(const net::HttpRequest&)> answer) {
  return [&pool, answer = std::move(answer)](net::HttpExchange& exchange) {
    return compute_and_send(pool, answer, exchange);
  };
}

}  // namespace slime::engine
