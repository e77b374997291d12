#pragma once

/// Engine client of a run's HTTP API (run_api.h): samples, and aborts its own requests. It cannot stop the
/// engine or change its weights, and does not see the run's own requests.

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "engine/client.h"

namespace slime::plugin {

class RunApiEngine final : public engine::EngineClient {
 public:
  /// Once, before the first request; `engine` outlives the object.
  void open(engine::EngineClient& engine) { engine_ = &engine; }

  /// Requests under way end with what they have, and new ones end at once, until it is false again:
  /// whoever asks is to come to an end.
  void set_aborting(bool is_aborting);

  engine::RequestHandle submit(engine::GenerateRequest request, OnUpdate on_update) override;
  Expected<void> abort(engine::RequestHandle request) override {
    return engine_.load()->abort(request);
  }
  Expected<void> abort_prefix(const std::string& prefix) override;
  Expected<void> abort_all() override { return abort_prefix(""); }
  Expected<void> pause(engine::PauseMode) override { return refused("pauses it"); }
  Expected<void> resume() override { return refused("resumes it"); }
  Expected<bool> flush_cache() override { return engine_.load()->flush_cache(); }
  Expected<void> sleep() override { return refused("takes its memory"); }
  Expected<void> wake() override { return refused("gives it its memory"); }
  Expected<void> update_weights(const engine::WeightUpdate&) override {
    return refused("updates its weights");
  }
  /// Tokens that the engine has sampled so far for requests through the API, kept by a sample or not.
  int64_t num_sampled_tokens() const { return open_->num_sampled_tokens; }
  WeightVersion weight_version() const override { return engine_.load()->weight_version(); }
  Expected<engine::EngineLoad> load() const override { return engine_.load()->load(); }

 private:
  /// Requests that have not ended. An update may be the last, and come before the handle does.
  struct Open {
    std::mutex mutex;
    uint64_t next = 0;
    struct Request {
      std::string rid;
      std::optional<engine::RequestHandle> handle;
    };
    std::map<uint64_t, Request> requests;  // guarded by mutex
    std::atomic<int64_t> num_sampled_tokens{0};
  };

  static Expected<void> refused(const char* what) {
    return failure(std::string("this engine is a run's: the run ") + what);
  }

  std::atomic<engine::EngineClient*> engine_{nullptr};
  std::atomic<bool> is_aborting_{false};
  const std::shared_ptr<Open> open_ = std::make_shared<Open>();
};

}  // namespace slime::plugin
