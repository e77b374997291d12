// Control calls of an engine in a server of SGLang's protocol.

#include <fmt/format.h>

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <thread>

#include "core/error.h"
#include "engine/remote/http_engine.h"
#include "engine/remote/http_engine_running.h"
#include "net/http_client.h"

namespace slime::engine {

Expected<net::HttpResponse> HttpEngine::ask(std::string method, std::string path,
                                            const json::object* body,
                                            std::chrono::milliseconds limit) const {
  net::HttpCall call{.method = std::move(method), .url = url() + path, .timeout = limit};
  if (body != nullptr) call.body = json_text(*body);
  if (!config_.api_key.empty())
    call.headers.emplace_back("Authorization", "Bearer " + config_.api_key);
  return net::http_call(call);
}

Expected<void> HttpEngine::order(std::string path, const json::object& body,
                                 std::chrono::milliseconds limit) const {
  const auto answer = ask("POST", path, &body, limit);
  if (!answer) return tl::make_unexpected(answer.error());
  if (answer->status != 200)
    return failure(fmt::format("{}{} answers {}: {}", url(), path, answer->status,
                               sglang_error_text(answer->body)));
  const auto parsed = try_parse_json(answer->body);
  const json::object* object = parsed ? parsed->if_object() : nullptr;
  const json::value* success = object == nullptr ? nullptr : object->if_contains("success");
  if (success != nullptr && success->is_bool() && !success->get_bool())
    return failure(fmt::format("{}{}: {}", url(), path, sglang_error_text(answer->body)));
  return {};
}

Expected<json::object> HttpEngine::ask_info() const {
  // Servers before SGLang 0.5 have the second name alone.
  std::string problem;
  for (const char* path : {"/server_info", "/get_server_info"}) {
    const auto answer = ask("GET", path, nullptr, config_.answer_limit);
    if (!answer) return tl::make_unexpected(answer.error());
    const auto parsed = answer->status == 200 ? try_parse_json(answer->body) : std::nullopt;
    if (parsed && parsed->is_object()) return parsed->get_object();
    problem = fmt::format("{}{} answers {}: {}", url(), path, answer->status,
                          sglang_error_text(answer->body));
  }
  return failure(problem);
}

std::optional<std::string> HttpEngine::why_unhealthy() const {
  const auto answer = ask("GET", "/health", nullptr, config_.connect_limit);
  if (!answer) return answer.error().message;
  if (answer->status != 200) return fmt::format("{}/health answers {}", url(), answer->status);
  return std::nullopt;
}

Expected<void> HttpEngine::hold() {
  on_own_thread([this] {
    is_held_ = true;
    for (const auto& [handle, running] : open_)
      if (running->upstream != nullptr) abort_there(running->part_rid);
  });
  const auto deadline = std::chrono::steady_clock::now() + config_.abort_limit;
  while (num_parts_ > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  // A server that read an abort before its request goes on with that: it ends with its connection.
  on_own_thread([this] {
    for (const auto& [handle, running] : open_)
      if (running->upstream != nullptr) running->upstream->close("it did not end when aborted");
  });
  while (num_parts_ > 0 && std::chrono::steady_clock::now() < deadline + config_.abort_limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  if (num_parts_ > 0) return failure(fmt::format("{}: requests do not end", url()));
  return {};
}

void HttpEngine::release() {
  on_own_thread([this] {
    is_held_ = false;
    released_.cancel();
    released_.expires_at(boost::asio::steady_timer::time_point::max());
  });
}

Expected<void> HttpEngine::pause(PauseMode mode) {
  if (mode == PauseMode::kAbort) {
    if (auto aborted_all = abort_all(); !aborted_all) return aborted_all;
  }
  return hold();
}

Expected<void> HttpEngine::resume() {
  release();
  return {};
}

Expected<bool> HttpEngine::flush_cache() {
  if (num_open_ > 0) return false;
  const json::object nothing;
  const auto done = order("/flush_cache", nothing, config_.answer_limit);
  if (!done) return tl::make_unexpected(done.error());
  return true;
}

Expected<void> HttpEngine::sleep() {
  return failure(url() + " has memory of its own: it does not take turns with a trainer");
}

Expected<void> HttpEngine::wake() { return {}; }

Expected<void> HttpEngine::update_weights(const WeightUpdate& update) {
  const auto* from = std::get_if<FromDirectory>(&update.source);
  if (from == nullptr)
    return failure(url() + " takes new weights from a folder (--update-weight-disk-dir)");
  if (const auto why = why_lost()) return failure(*why);
  if (auto held = hold(); !held) {
    release();
    return held;
  }
  const std::string name = std::to_string(update.version);
  const json::object body{{"model_path", from->path.string()},
                          {"weight_version", name},
                          {"flush_cache", true},
                          {"abort_all_requests", false}};
  Expected<void> done = order("/update_weights_from_disk", body, config_.weights_limit);
  if (done) {
    on_own_thread([&] {
      version_ = update.version;
      expected_version_ = name;
    });
  }
  if (!done && why_unhealthy())
    on_own_thread([&] { lose(FinishReason::Cause::kEngineLost, done.error().message); });
  if (!update.stays_paused || !done) release();
  return done;
}

Expected<EngineLoad> HttpEngine::load() const {
  if (const auto why = why_lost()) return failure(*why);
  EngineLoad load;
  load.num_running = num_parts_;
  load.num_waiting = num_open_ - num_parts_;
  load.steps_done = num_frames_;
  return load;
}

}  // namespace slime::engine
