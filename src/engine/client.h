#pragma once

/// The rollout engine as its callers see it: token ids in, token ids with log-probs out.
///
/// The same interface is an engine in this process (engine/engine.h) and, later, one behind HTTP.
/// Calls may come from any thread. Words and meanings are SGLang's, because users' agents speak
/// them (reference sglang.md section 1).

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/json.h"
#include "core/sample.h"

namespace slime::engine {

/// Defaults and ranges are SGLang's; `validate` in engine/sampling_params.h checks them.
struct SamplingParams {
  int64_t max_new_tokens = 128;     // 0 scores the prompt only
  double temperature = 1.0;         // >= 0; below 1e-6 is greedy
  double top_p = 1.0;               // (0, 1]
  int64_t top_k = -1;               // -1: all
  double min_p = 0.0;               // [0, 1]
  double frequency_penalty = 0.0;   // [-2, 2]
  double presence_penalty = 0.0;    // [-2, 2]
  double repetition_penalty = 1.0;  // (0, 2]
  int64_t min_new_tokens = 0;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  std::vector<std::pair<TokenId, double>> logit_bias;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool spaces_between_special_tokens = true;
  bool no_stop_trim = false;
  /// Key of the counter-based generator; the counter is the position. Unset: the engine draws one
  /// per request.
  std::optional<uint64_t> sampling_seed;
};

struct GenerateRequest {
  std::string rid;  // must be unique among running requests; empty: the engine makes one
  std::vector<TokenId> input_ids;
  SamplingParams sampling;
  bool return_logprob = false;
  int64_t logprob_start_len = -1;  // first prompt position whose log-prob is wanted; -1: none
  int64_t top_logprobs_num = 0;
  bool return_top_p_token_ids = false;  // record the ids that survived the top-p cut
  int64_t stream_interval = 1;          // tokens per update; 0: one update, at the end
};

struct FinishReason {
  enum class Kind { kStop, kLength, kAbort };
  Kind kind = Kind::kStop;
  std::variant<std::monostate, TokenId, std::string>
      matched;          // kStop: the stop id or the stop string
  std::string message;  // kAbort: why
  int status_code = 0;  // kAbort: 400 for a bad request, 499, 500, 503, 507 (no memory)
};

/// `top[i]` are the best (log-prob, id) of one position, best first.
using TopLogProbs = std::vector<std::vector<std::pair<float, TokenId>>>;

/// What happened to a request since the previous update (deltas), or everything at once for a
/// caller that waits.
struct GenerateUpdate {
  std::string rid;
  std::vector<TokenId> output_ids;      // new tokens
  std::vector<float> output_log_probs;  // of those; temperature applied, float32
  TopLogProbs output_top;               // only with top_logprobs_num > 0
  std::vector<TokenId> top_p_ids;       // kept ids of the new tokens, flat
  std::vector<int64_t> top_p_counts;    // how many of them per new token
  std::vector<std::optional<float>>
      input_log_probs;  // in the first update: from logprob_start_len on; position 0 has none
  TopLogProbs input_top;
  std::optional<FinishReason> finish;  // set in the last update
  std::vector<VersionRun> versions;    // who made the new tokens
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, found in the prefix tree
  int64_t num_retractions = 0;
  double queue_seconds = 0;
  double total_seconds = 0;  // so far
};

enum class PauseMode { kAbort, kRetract, kInPlace };

struct EngineLoad {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  int64_t num_kv_tokens_used = 0;
  int64_t num_kv_tokens = 0;
  int64_t steps_done = 0;  // progress counter: a busy engine is healthy while it moves
  double seconds_since_step = 0;
  double decode_tokens_per_second = 0;  // over the last second or so
  bool is_paused = false;
};

class EngineClient {
 public:
  virtual ~EngineClient() = default;

  /// Called on the engine's thread with each update: do little, never block. The last update has
  /// `finish`.
  using OnUpdate = std::function<void(GenerateUpdate)>;

  /// A request that cannot run ends at once with kAbort and status code 400; nothing is thrown.
  virtual void submit(GenerateRequest request, OnUpdate on_update) = 0;
  virtual void abort(const std::string& rid) = 0;
  virtual void abort_all() = 0;

  virtual void pause(PauseMode mode) = 0;
  virtual void resume() = 0;
  /// False when requests are running.
  virtual bool flush_cache() = 0;

  /// Gives the memory of keys and values back. Nothing is computed until wake(): requests wait,
  /// those that ran go back in line and keep their tokens. SGLang: release_memory_occupation and
  /// resume_memory_occupation with the tag kv_cache.
  virtual void sleep() = 0;
  virtual void wake() = 0;

  virtual WeightVersion weight_version() const = 0;
  virtual EngineLoad load() const = 0;
};

}  // namespace slime::engine
