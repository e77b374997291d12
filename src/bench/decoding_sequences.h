#pragma once

/// Sequences that decode together until they are stopped, and the gaps between the steps that give
/// them tokens.

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/clock.h"
#include "engine/client.h"

namespace slime::bench {

struct DecodingOptions {
  int64_t sequences = 256;
  int64_t prompt_tokens = 256;    // of each
  int64_t max_new_tokens = 1024;  // of each; one that has them all is a failure
  int64_t vocab_size = 0;
  std::string adapter;  // that they name; empty: none
};

/// From the last token of a step to the first of the next.
struct StepGap {
  Clock::TimePoint end;
  double seconds = 0;
  bool changes_version = false;  // the next step is the first with other weights
};

/// A step ends for the caller with its last token; the next begins with a token of a sequence that
/// has one of this step. One class because the ends of steps, of sequences and of the measurement
/// follow from the same updates.
class DecodingSequences final {
 public:
  /// Submits all. References outlive the object.
  DecodingSequences(engine::EngineClient& engine, const Clock& clock, DecodingOptions options);
  ~DecodingSequences() { stop(); }
  DecodingSequences(const DecodingSequences&) = delete;
  DecodingSequences& operator=(const DecodingSequences&) = delete;

  /// Until all sequences have a token, and so many steps more. Throws ConfigError when the engine
  /// ended a sequence that nobody ended.
  void wait_for_steps(int64_t more);

  /// Ends all requests of the engine, and waits for that. What an abort or an update ends before goes on.
  void stop();

  /// All so far, and those that ended since `begin`. Any thread.
  std::vector<StepGap> gaps() const;
  std::vector<StepGap> gaps_since(Clock::TimePoint begin) const;

  /// When the first token of these weights came; none did: the default.
  Clock::TimePoint first_token_of(WeightVersion version) const;

 private:
  struct Sequence {
    std::vector<TokenId> tokens;
    int64_t left = 0;
    int64_t in_step = -1;  // the last step that gave it a token
  };

  void submit(std::size_t index);
  /// The engine's thread, or the one that submits where it refuses.
  void take(std::size_t index, const engine::GenerateUpdate& update);
  void note_token(Sequence& sequence, WeightVersion version, Clock::TimePoint now);
  bool all_have_begun() const { return num_begun_ == static_cast<int64_t>(sequences_.size()); }

  engine::EngineClient& engine_;
  const Clock& clock_;
  const std::string adapter_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<Sequence> sequences_;
  std::vector<StepGap> gaps_;
  std::map<WeightVersion, Clock::TimePoint> first_tokens_;
  int64_t num_open_ = 0;
  int64_t num_begun_ = 0;
  int64_t num_steps_ = 0;
  bool has_full_step_ = false;
  bool is_stopping_ = false;
  WeightVersion version_ = 0;
  Clock::TimePoint last_token_;
  std::string failure_;
};

/// Milliseconds of the median gap between two steps of the same weights.
double normal_step_ms(const std::vector<StepGap>& gaps);

/// Of each gap across versions what it is longer than the median of those beside it, in milliseconds:
/// steps grow longer with the sequences.
std::vector<double> pauses_ms(const std::vector<StepGap>& gaps);

/// 0 of none.
double largest(const std::vector<double>& numbers);

}  // namespace slime::bench
