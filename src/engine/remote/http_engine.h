#pragma once

/// Engine in a server of SGLang's protocol, `slime serve` or SGLang, which somebody else started. A
/// request is a call of /generate whose answer is streamed; new weights come through a folder that the
/// server reads (docs/decisions/0134-external-engines.md).
///
/// Requests that run when the weights change are aborted in the server and go on behind the update
/// with the tokens that they have. So a token's version is that of the weights which drew it, whatever
/// a server does with running requests meanwhile.

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "engine/client.h"
#include "engine/remote/sglang_answer.h"
#include "net/http_exchange.h"
#include "net/http_upstream.h"

namespace slime::engine {

struct HttpEngineConfig {
  std::string host = {};  // name or address
  std::uint16_t port = 0;
  std::string api_key = {};  // sent as a bearer token; empty: none
  std::chrono::milliseconds connect_limit{5'000};
  std::chrono::milliseconds answer_limit{60'000};    // of a control call
  std::chrono::milliseconds abort_limit{5'000};      // until aborted requests have ended
  std::chrono::milliseconds weights_limit{600'000};  // of new weights, which the server reads
  std::size_t frame_limit_bytes = std::size_t{64} << 20;
};

/// One class because what runs, what waits for new weights and whether the server is lost change
/// together, on one thread.
class HttpEngine final : public EngineClient {
 public:
  explicit HttpEngine(HttpEngineConfig config);
  /// Unfinished requests end with kShuttingDown.
  ~HttpEngine() override;
  HttpEngine(const HttpEngine&) = delete;
  HttpEngine& operator=(const HttpEngine&) = delete;

  std::string url() const;

  /// /server_info: {"context_length", "max_req_input_len", ...}. Any thread, as all that follows.
  Expected<json::object> ask_info() const;
  /// Why GET /health is not answered by 200; nothing: it is.
  std::optional<std::string> why_unhealthy() const;

  /// Updates come on a thread of the object's own. Control calls made from there do not wait.
  RequestHandle submit(GenerateRequest request, OnUpdate on_update) override;
  Expected<void> abort(RequestHandle request) override;
  Expected<void> abort_prefix(const std::string& prefix) override;
  Expected<void> abort_all() override { return abort_prefix(""); }
  /// kAbort ends what runs; otherwise it is kept here until resume(). Nothing is sent meanwhile.
  Expected<void> pause(PauseMode mode) override;
  Expected<void> resume() override;
  Expected<bool> flush_cache() override;
  Expected<void> sleep() override;  // an error: the server's memory is its own
  Expected<void> wake() override;
  /// FromDirectory alone.
  Expected<void> update_weights(const WeightUpdate& update) override;
  WeightVersion weight_version() const override { return version_; }
  /// By what is known here: requests under way, tokens that were told.
  Expected<EngineLoad> load() const override;

  /// Gives the server up; returns at once. Any thread.
  void disconnect(const std::string& why);
  std::optional<std::string> why_lost() const;

 private:
  struct Running;
  using RunningPtr = std::shared_ptr<Running>;
  enum class PartEnd { kFinished, kAborted, kFailed };

  // On the object's thread.
  net::Task<void> run(RunningPtr running);
  net::Task<PartEnd> run_part(RunningPtr running);
  net::Task<void> wait_for_release();
  void tell(Running& running, GenerateUpdate update);
  void end(Running& running, FinishReason finish);
  void abort_there(const std::string& rid);
  void lose(FinishReason::Cause cause, const std::string& why);
  FinishReason lost_reason() const;

  /// A control call, from another thread.
  Expected<net::HttpResponse> ask(std::string method, std::string path, const json::object* body,
                                  std::chrono::milliseconds limit) const;
  Expected<void> order(std::string path, const json::object& body,
                       std::chrono::milliseconds limit) const;
  /// `work` on the object's thread; returns when it is done.
  void on_own_thread(std::function<void()> work) const;
  bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  /// Aborts what runs, which is kept, and waits until the server has ended it.
  Expected<void> hold();
  void release();

  const HttpEngineConfig config_;
  std::atomic<WeightVersion> version_{0};
  std::atomic<uint64_t> num_requests_{0};
  std::atomic<int64_t> num_open_{0};   // requests
  std::atomic<int64_t> num_parts_{0};  // of those, that are in the server
  std::atomic<int64_t> num_frames_{0};

  mutable std::mutex mutex_;
  std::optional<FinishReason> lost_;  // guarded by mutex_

  mutable boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  // Of the object's thread.
  std::map<RequestHandle, RunningPtr> open_;
  bool is_held_ = false;                // nothing is sent to the server
  std::string expected_version_;        // as the server calls it; empty: nobody knows
  boost::asio::steady_timer released_;  // cancelled: look again
  std::jthread thread_;                 // last: it uses everything above
};

}  // namespace slime::engine
