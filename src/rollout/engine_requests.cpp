#include "rollout/engine_requests.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

namespace slime::rollout {

namespace asio = boost::asio;

EngineRequests::EngineRequests(engine::EngineClient& engine, asio::io_context& context,
                               int64_t max_in_flight, std::function<void(const Error&)> on_failure)
    : engine_(engine),
      context_(context),
      max_in_flight_(max_in_flight),
      on_failure_(std::move(on_failure)),
      limit_(max_in_flight) {}

Expected<void> EngineRequests::begin_first_wave(int64_t num_draws) {
  const int64_t wave = is_closed_ ? 0 : std::min(num_draws, max_in_flight_);
  if (wave == 0) return {};
  Expected<void> paused = engine_.pause(engine::PauseMode::kInPlace);
  if (!paused) return paused;
  has_paused_engine_ = true;
  first_wave_left_ = wave;
  return {};
}

void EngineRequests::note_submission() {
  if (first_wave_left_ == 0 || --first_wave_left_ > 0) return;
  // The last of them is submitted before what is posted here runs.
  asio::post(context_, [this] {
    const Expected<void> resumed = resume_engine();
    if (!resumed) on_failure_(resumed.error());
  });
}

Expected<void> EngineRequests::resume_engine() {
  if (!has_paused_engine_) return {};
  Expected<void> resumed = engine_.resume();
  has_paused_engine_ = !resumed;
  return resumed;
}

asio::awaitable<std::optional<engine::GenerateUpdate>> EngineRequests::draw(
    std::function<std::optional<engine::GenerateRequest>()> make_request,
    std::optional<UnderWay>& under_way, OnSampled on_sampled) {
  co_await gate_.pass();
  if (is_closed_) co_return std::nullopt;
  std::optional<engine::GenerateRequest> request = make_request();
  if (!request) co_return std::nullopt;
  under_way.emplace();
  under_way->sampled = std::make_shared<SampledSoFar>();
  OnSubmitted on_submitted = [this, &under_way](engine::RequestHandle submitted) {
    under_way->handle = submitted;
    in_flight_.insert(submitted);
  };
  note_submission();
  engine::GenerateUpdate generated =
      co_await generate(engine_, std::move(*request), under_way->sampled, std::move(on_submitted),
                        std::move(on_sampled));
  in_flight_.erase(under_way->handle);
  under_way.reset();
  num_tokens_ += static_cast<int64_t>(generated.output_ids.size());
  co_return generated;
}

Expected<void> EngineRequests::abort_in_flight() {
  Expected<void> first;
  for (const engine::RequestHandle request : in_flight_) {
    Expected<void> aborted = engine_.abort(request);
    if (!aborted && first) first = std::move(aborted);
  }
  return first;
}

Expected<void> EngineRequests::interrupt() {
  gate_.close();
  return abort_in_flight();
}

Expected<void> EngineRequests::close() {
  is_closed_ = true;
  Expected<void> aborted = abort_in_flight();
  first_wave_left_ = 0;
  Expected<void> resumed = resume_engine();
  gate_.open();  // who waits there sees that it is closed
  return aborted ? resumed : aborted;
}

}  // namespace slime::rollout
