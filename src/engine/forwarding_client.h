#pragma once

/// An engine in front of another one: each call goes on to the one behind, unless a derived class
/// does something else with it.

#include <string>
#include <utility>

#include "engine/client.h"

namespace slime::engine {

class ForwardingClient : public EngineClient {
 public:
  /// `engine` outlives the object.
  explicit ForwardingClient(EngineClient& engine) : engine_(engine) {}

  RequestHandle submit(GenerateRequest request, OnUpdate on_update) override {
    return engine_.submit(std::move(request), std::move(on_update));
  }
  Expected<void> abort(RequestHandle request) override { return engine_.abort(request); }
  Expected<void> abort_prefix(const std::string& prefix) override {
    return engine_.abort_prefix(prefix);
  }
  Expected<void> abort_all() override { return engine_.abort_all(); }
  Expected<void> pause(PauseMode mode) override { return engine_.pause(mode); }
  Expected<void> resume() override { return engine_.resume(); }
  Expected<bool> flush_cache() override { return engine_.flush_cache(); }
  Expected<void> sleep() override { return engine_.sleep(); }
  Expected<void> wake() override { return engine_.wake(); }
  Expected<void> update_weights(const WeightUpdate& update) override {
    return engine_.update_weights(update);
  }
  Expected<WeightChecksums> check_weights(WeightCheck check) override {
    return engine_.check_weights(check);
  }
  Expected<WeightRows> read_weight(const std::string& name, int64_t most_rows) override {
    return engine_.read_weight(name, most_rows);
  }
  WeightVersion weight_version() const override { return engine_.weight_version(); }
  Expected<EngineLoad> load() const override { return engine_.load(); }

 protected:
  EngineClient& engine_;
};

}  // namespace slime::engine
