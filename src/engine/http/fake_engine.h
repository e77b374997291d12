#pragma once

/// For tests: an engine without a model. It answers every request with a fixed text, one token per
/// step, on its own thread.

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "engine/client.h"
#include "text/tokenizer.h"

namespace slime::engine {

/// One token per printable ASCII character, its code as id; <|im_end|> is 127.
std::unique_ptr<text::Tokenizer> make_ascii_tokenizer();
inline constexpr TokenId kEndId = 127;

class FakeEngine final : public EngineClient {
 public:
  /// Log-prob of the i-th token is -(i + 1) / 2. After the text comes <|im_end|>. An empty text
  /// never ends: "a" repeats.
  explicit FakeEngine(std::string text);
  ~FakeEngine() override;

  void submit(GenerateRequest request, OnUpdate on_update) override;
  void abort(const std::string& rid) override;
  void abort_all() override;
  void pause(PauseMode mode) override;
  void resume() override;
  bool flush_cache() override;
  void sleep() override { pause(PauseMode::kRetract); }
  void wake() override { resume(); }
  WeightVersion weight_version() const override;
  EngineLoad load() const override;

  void set_weight_version(WeightVersion version);
  /// The requests as they came.
  std::vector<GenerateRequest> requests() const;

 private:
  struct Running {
    GenerateRequest request;
    OnUpdate on_update;
    std::size_t num_made = 0;
    bool is_aborted = false;
  };
  void run(std::stop_token stop);
  /// The next update of a request; it is over when that has a finish.
  GenerateUpdate next_update(Running& running) const;

  const std::string text_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<GenerateRequest> seen_;       // guarded by mutex_
  std::map<std::string, Running> running_;  // guarded by mutex_
  bool is_paused_ = false;                  // guarded by mutex_
  int64_t steps_ = 0;                       // guarded by mutex_
  WeightVersion version_ = 0;               // guarded by mutex_
  std::jthread thread_;
};

}  // namespace slime::engine
