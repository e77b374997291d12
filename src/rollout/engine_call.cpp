#include "rollout/engine_call.h"

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>

#include "engine/request_parts.h"

namespace slime::rollout {

namespace asio = boost::asio;

std::optional<int64_t> SampledSoFar::add(engine::GenerateUpdate update) {
  const std::lock_guard lock(mutex_);
  if (has_ended_) return std::nullopt;
  has_ended_ = update.finish.has_value();
  merge(all_, std::move(update));
  return static_cast<int64_t>(all_.output_ids.size());
}

engine::GenerateUpdate SampledSoFar::copy() const {
  const std::lock_guard lock(mutex_);
  return all_;
}

engine::GenerateUpdate SampledSoFar::take() {
  const std::lock_guard lock(mutex_);
  return std::move(all_);
}

asio::awaitable<engine::GenerateUpdate> generate(engine::EngineClient& engine,
                                                 engine::GenerateRequest request,
                                                 std::shared_ptr<SampledSoFar> sampled,
                                                 OnSubmitted on_submitted, OnSampled on_sampled) {
  co_await asio::async_initiate<decltype(asio::use_awaitable), void()>(
      [&engine](auto handler, engine::GenerateRequest to_submit, std::shared_ptr<SampledSoFar> all,
                const OnSubmitted& submitted, OnSampled to_tell) {
        // The executor counts the request as outstanding work, so that run() does not return under
        // it.
        auto executor = asio::prefer(asio::get_associated_executor(handler),
                                     asio::execution::outstanding_work.tracked);
        auto waiting = std::make_shared<decltype(handler)>(std::move(handler));
        submitted(engine.submit(
            std::move(to_submit), [waiting, executor, all = std::move(all),
                                   on_sampled = std::move(to_tell)](engine::GenerateUpdate update) {
              const bool is_last = update.finish.has_value();
              const std::optional<int64_t> num_sampled = all->add(std::move(update));
              if (!num_sampled) return;
              if (is_last) {
                asio::post(executor, [waiting] { std::move (*waiting)(); });
              } else if (on_sampled) {
                on_sampled(*num_sampled);
              }
            }));
      },
      asio::use_awaitable, std::move(request), sampled, std::move(on_submitted),
      std::move(on_sampled));
  co_return sampled->take();
}

}  // namespace slime::rollout
