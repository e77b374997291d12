#pragma once

/// For tests: an engine without a model. It answers every request with a fixed text, one token per
/// step, on its own thread.

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "engine/client.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {

/// One token per printable ASCII character, its code as id; <|im_end|> is 127.
std::unique_ptr<text::Tokenizer> make_ascii_tokenizer();
inline constexpr TokenId kEndId = 127;

/// One class because it is one interface with one lock, and tests look at all of it.
class FakeEngine final : public EngineClient {
 public:
  /// Log-prob of the i-th token is -(i + 1) / 2. After the text comes <|im_end|>. An empty text
  /// never ends: "a" repeats.
  explicit FakeEngine(std::string text);
  ~FakeEngine() override;

  /// A rid that is running is refused.
  RequestHandle submit(GenerateRequest request, OnUpdate on_update) override;
  Expected<void> abort(RequestHandle request) override;
  Expected<void> abort_prefix(const std::string& prefix) override;
  Expected<void> abort_all() override;
  Expected<void> pause(PauseMode mode) override;
  Expected<void> resume() override;
  Expected<bool> flush_cache() override;
  Expected<void> sleep() override { return pause(PauseMode::kRetract); }
  Expected<void> wake() override { return resume(); }
  /// Takes 50 ms, in which the new version makes tokens already. Directories called "qwen2" have another
  /// shape.
  Expected<void> update_weights(const WeightUpdate& update) override;
  /// Two tensors, of the version; a comparison finds the first changed.
  Expected<WeightChecksums> check_weights(WeightCheck check) override;
  WeightVersion weight_version() const override;
  Expected<EngineLoad> load() const override;

  /// False: requests and aborts wait, as they do while a step is long; true: they are read, in
  /// their order.
  void set_is_reading(bool is_reading);
  /// What load() says of a step that does not end.
  void set_seconds_without_progress(double seconds);
  /// Of the updates that were carried out.
  std::vector<WeightVersion> update_versions() const;
  /// The requests as they came.
  std::vector<GenerateRequest> requests() const;

 private:
  struct Running {
    RequestHandle handle{};
    GenerateRequest request;
    OnUpdate on_update;
    std::size_t num_made = 0;
    bool is_aborted = false;
  };
  using Matches = std::function<bool(const Running&)>;
  Expected<void> abort_where(Matches matches);
  /// Now, or when it reads again. `command` is called with mutex_ held.
  void read(std::function<void()> command);
  void admit(Running request);
  void run(std::stop_token stop);
  /// The next update of a request; it is over when that has a finish.
  GenerateUpdate next_update(Running& running) const;

  const std::string text_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<GenerateRequest> seen_;                         // guarded by mutex_
  std::map<std::string, Running> running_;                    // guarded by mutex_
  std::vector<std::pair<OnUpdate, GenerateUpdate>> refused_;  // guarded by mutex_; to be told
  std::vector<std::function<void()>> unread_;                 // guarded by mutex_
  bool is_reading_ = true;                                    // guarded by mutex_
  uint64_t num_handles_ = 0;                                  // guarded by mutex_
  bool is_paused_ = false;                                    // guarded by mutex_
  int64_t steps_ = 0;                                         // guarded by mutex_
  WeightVersion version_ = 0;                                 // guarded by mutex_
  std::vector<WeightVersion> updates_;                        // guarded by mutex_
  double seconds_without_progress_ = 0;                       // guarded by mutex_
  std::jthread thread_;
};

}  // namespace slime::engine
