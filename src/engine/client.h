#pragma once

/// The rollout engine as its callers see it: token ids in, token ids with log-probs out.
///
/// The same interface is an engine in this process (engine/engine.h), one in a worker process
/// (engine/remote), and several of them (router/router.h). So every call that has to reach the engine can fail, and says so
/// with an Error; a request that has been submitted always ends with an update. Calls may come from
/// any thread. Words and meanings are SGLang's, because users' agents speak them (reference
/// sglang.md section 1).

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/draft_counts.h"
#include "core/expected.h"
#include "core/json.h"
#include "core/sample.h"
#include "core/weight_checksums.h"

namespace slime::model {
class Network;
struct TensorUpdate;
struct WeightDelta;
}  // namespace slime::model

namespace slime::engine {

struct LoadedAdapter;

/// The sampling parameters, with SGLang's names, defaults and ranges. A new one is a member here and a
/// line in engine/sampling_fields.h, which has the ranges: docs/adding_a_sampling_parameter.md.
struct SamplingParams {
  int64_t max_new_tokens = 128;     // 0 scores the prompt only
  double temperature = 1.0;         // [0, 1e6]; below 1e-6 is greedy
  double top_p = 1.0;               // (0, 1]
  int64_t top_k = -1;               // -1: all
  double min_p = 0.0;               // [0, 1]
  double frequency_penalty = 0.0;   // [-2, 2]
  double presence_penalty = 0.0;    // [-2, 2]
  double repetition_penalty = 1.0;  // [1e-6, 2]
  int64_t min_new_tokens = 0;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  std::vector<std::pair<TokenId, double>> logit_bias;  // [-1e30, 1e30]
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool spaces_between_special_tokens = true;
  bool no_stop_trim = false;
  // What the response has to be, in one of four forms; all empty: anything.
  std::string json_schema;
  std::string regex;
  std::string ebnf;            // its root is the rule `root`
  std::string structural_tag;  // JSON
  /// The response is made of these ids alone, end tokens included; empty: of any.
  std::vector<TokenId> allowed_token_ids;
  /// Texts that the response does not hold, as the tokens that the tokenizer makes of each, at the
  /// beginning of a text and behind a blank.
  std::vector<std::string> bad_words;
  /// Key of the counter-based generator; the counter is the position. Unset: the engine draws one
  /// per request.
  std::optional<uint64_t> sampling_seed;

  bool has_grammar() const {
    return !json_schema.empty() || !regex.empty() || !ebnf.empty() || !structural_tag.empty();
  }
  bool has_token_lists() const { return !allowed_token_ids.empty() || !bad_words.empty(); }
  /// What is drawn is not the model's own distribution.
  bool is_constrained() const { return has_grammar() || has_token_lists(); }
};

/// Thoughts of a response, which no grammar binds.
struct FreeThoughts {
  std::string opening;    // the mark that may begin the response; empty: none may
  std::string closing;    // the mark behind which the grammar begins
  bool are_open = false;  // the prompt has opened them
};

struct GenerateRequest {
  std::string rid;  // must be unique among running requests; empty: the engine makes one
  std::vector<TokenId> input_ids;
  std::vector<MediaSpan> media;  // of input_ids; empty: all are text
  /// The last so many of input_ids are of this response, sampled by a call before: stop strings and
  /// penalties see them. The limits of `sampling` are of what is still to be sampled.
  int64_t num_sampled = 0;
  SamplingParams sampling;
  FreeThoughts thoughts;      // in front of what the grammar binds
  std::string grammar_field;  // what the client calls the grammar; empty: as `sampling` does
  /// Name of a loaded adapter; empty: the model as it is.
  std::string adapter;
  /// Of that name, for requests that have to take the same; stays in this process. Null: the version that is
  /// loaded when the engine admits the request.
  std::shared_ptr<const LoadedAdapter> adapter_version;
  /// Prefixes are shared among requests with the same salt alone.
  std::string cache_salt;
  bool return_logprob = false;
  int64_t logprob_start_len = -1;  // first prompt position whose log-prob is wanted; -1: none
  int64_t top_logprobs_num = 0;
  std::vector<TokenId> token_ids_logprob;  // their log-probs too, wherever one is returned
  bool return_free_logprobs = false;       // of the response, as if there were no grammar
  bool return_top_p_token_ids = false;     // record the ids that survived the top-p cut
  bool return_top_p_log_probs = false;     // and their log-probs among themselves
  /// Which experts each token visits is told, of rows from this one on; of prompts with a token sampled.
  bool return_routed_experts = false;
  int64_t routed_experts_start_len = 0;
  int64_t stream_interval = 1;  // tokens per update; 0: one update, at the end
};

struct FinishReason {
  enum class Kind { kStop, kLength, kAbort };
  /// Of a kAbort: what a caller does next depends on it.
  enum class Cause {
    kRequested,         // somebody asked for it: abort, pause, an update of the weights
    kBadRequest,        // it cannot run: the request has to change
    kQueueFull,         // too many wait; it can run later, or elsewhere
    kResponseTooLarge,  // its response outgrew what one call may hold
    kResponsesFull,     // the responses of all calls together did
    kOutOfMemory,       // the device has no room for the step
    kEngineFailed,      // the step failed; the engine goes on with other requests
    kEngineLost,        // the engine is gone or out of reach; another one can go on with the tokens
    kShuttingDown,
  };
  Kind kind = Kind::kStop;
  std::variant<std::monostate, TokenId, std::string>
      matched;                      // kStop: the stop id or the stop string
  std::string message;              // kAbort: why, for a person
  Cause cause = Cause::kRequested;  // kAbort
};

inline FinishReason aborted(FinishReason::Cause cause, std::string message) {
  return {.kind = FinishReason::Kind::kAbort,
          .matched = {},
          .message = std::move(message),
          .cause = cause};
}

/// `top[i]` are the best (log-prob, id) of one position, best first.
using TopLogProbs = std::vector<std::vector<std::pair<float, TokenId>>>;

/// What happened to a request since the previous update (deltas), or everything at once for a
/// caller that waits.
struct GenerateUpdate {
  std::string rid;
  std::vector<TokenId> output_ids;  // new tokens
  /// Of those, and of the distribution they were drawn from; temperature applied, float32.
  std::vector<float> output_log_probs;
  std::vector<float> output_free_log_probs;  // of the same tokens; with return_free_logprobs
  /// So many of the new tokens, the last ones, were drawn under a constraint: a grammar, also where it
  /// waits for the end of thoughts and only forbids to end, or a list of tokens.
  int64_t num_constrained = 0;
  TopLogProbs output_top;              // only with top_logprobs_num > 0
  TopLogProbs output_asked;            // of token_ids_logprob, in their order
  std::vector<TokenId> top_p_ids;      // kept ids of the new tokens, flat
  std::vector<int64_t> top_p_counts;   // how many of them per new token
  std::vector<float> top_p_log_probs;  // of top_p_ids; with return_top_p_log_probs
  /// Choices of routers, row by row behind those of earlier updates: [rows][layers][experts per token].
  /// Row p is that of token p, so the last token, which nobody has read yet, has none.
  std::vector<int16_t> routed_experts;
  std::vector<std::optional<float>>
      input_log_probs;  // in the first update: from logprob_start_len on; position 0 has none
  TopLogProbs input_top;
  TopLogProbs input_asked;
  std::optional<FinishReason> finish;  // set in the last update
  std::vector<VersionRun> versions;    // who made the new tokens
  /// Who computed the prompt: beside its log-probs, and where no token is drawn.
  std::optional<WeightVersion> scored_by;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, found in the prefix tree
  int64_t num_retractions = 0;
  DraftCounts drafts;  // since the update before
  double queue_seconds = 0;
  double total_seconds = 0;  // so far
};

enum class PauseMode { kAbort, kRetract, kInPlace };

/// Constrained decoding since the start.
struct GrammarLoad {
  int64_t num_compiled = 0;
  int64_t num_refused = 0;   // sources that cannot be followed
  int64_t num_too_slow = 0;  // compilations beyond their time
  int64_t num_busy = 0;      // turned away: too many waited
  int64_t num_cache_hits = 0;
  int64_t num_waiting = 0, num_running = 0;  // compilations now
  int64_t num_cached = 0;                    // grammars now
  int64_t cache_bytes = 0;
  int64_t num_masks = 0;
  double mask_seconds = 0;  // for all masks together
};

/// Calls fn(member) for each, in the order of frames; or fn(member, other's member).
template <typename Fn, typename... Load>
void each_grammar_number(const Fn& fn, Load&... load) {
  fn(load.num_compiled...);
  fn(load.num_refused...);
  fn(load.num_too_slow...);
  fn(load.num_busy...);
  fn(load.num_cache_hits...);
  fn(load.num_waiting...);
  fn(load.num_running...);
  fn(load.num_cached...);
  fn(load.cache_bytes...);
  fn(load.num_masks...);
  fn(load.mask_seconds...);
}

/// Of several engines together.
inline void add(const GrammarLoad& load, GrammarLoad& sum) {
  each_grammar_number([](const auto& number, auto& total) { total += number; }, load, sum);
}

struct EngineLoad {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  int64_t num_kv_tokens_used = 0;
  int64_t num_kv_tokens = 0;             // as many as there is room for with nothing given back
  int64_t num_kv_tokens_given_back = 0;  // behind windows, by running requests, so far
  int64_t steps_done = 0;  // progress counter: a busy engine is healthy while it moves
  double seconds_since_step = 0;
  /// Since the last step ended, or since there is something to do, whichever is later. 0 when there
  /// is nothing to do: an idle or paused engine is as it should be.
  double seconds_without_progress = 0;
  double decode_tokens_per_second = 0;  // over the last second or so
  bool is_paused = false;
  GrammarLoad grammars = {};
  DraftCounts drafts = {};  // so far
};

/// Where new weights are.
struct InPlace {};  // in the memory that the engine computes from, changed while it was paused
struct FromDirectory {
  std::filesystem::path path;  // a checkpoint of the running model's shapes
};
struct FromNetwork {
  model::Network* network = nullptr;  // of this process, of the running model's shapes
  /// What changed in them since an earlier publication, for an engine elsewhere that has that one; who
  /// has not gets all. Or null.
  const model::WeightDelta* delta = nullptr;
};
struct Exchange {
  /// Of this process and the running model's shapes: computed with from now on. The network before is
  /// the caller's to write to when the call has returned.
  model::Network* network = nullptr;
};
struct FromTensors {
  /// Some of the running model's tensors; the others stay what they are.
  const model::TensorUpdate* update = nullptr;
};
using WeightSource = std::variant<InPlace, FromDirectory, FromNetwork, Exchange, FromTensors>;

/// What becomes of the requests that run while the weights change. Keys and values of old weights
/// never serve new requests, whatever running ones do with theirs.
enum class RunningRequests {
  kKeep,       // they go on with the keys and values that they have: what they draw depends on both
  kAbort,      // they end with what they have
  kRecompute,  // they keep their tokens, wait in line, and have keys and values computed again
  kDrop,  // the same, but behind all that waits already: their keys and values make room for it
};

struct WeightUpdate {
  WeightVersion version = 0;
  WeightSource source = InPlace{};
  RunningRequests running = RunningRequests::kRecompute;
  bool stays_paused = false;  // no step runs between the update and the next resume()
  /// Names the weights themselves: a version may come a second time with others, a publication not.
  /// 0: nobody asks which these are.
  uint64_t publication = 0;
};

/// What somebody wants to know of the weights, by SGLang's words (/weights_checker).
enum class WeightCheck {
  kChecksum,
  kSnapshot,  // their checksums are remembered
  kCompare,   // with those
  kReset,     // reset_tensors: they become random numbers, as long as nobody brings others
};

/// The first rows of a tensor, end to end.
struct WeightRows {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

/// Names one call of submit(), whatever rid its request has: no two calls of a client have the
/// same.
enum class RequestHandle : uint64_t {};

class EngineClient {
 public:
  virtual ~EngineClient() = default;

  /// Called on the engine's thread with each update: do little, never block. The last update has
  /// `finish`.
  using OnUpdate = std::function<void(GenerateUpdate)>;

  /// A request that cannot run, or cannot reach the engine, ends at once with kAbort and the cause;
  /// nothing is thrown. Updates may come before the handle does.
  virtual RequestHandle submit(GenerateRequest request, OnUpdate on_update) = 0;

  /// Ends the request of one call, also when the engine has not read it yet, and nobody else's:
  /// rids are the clients' and may meet.
  virtual Expected<void> abort(RequestHandle request) = 0;
  /// Ends those whose rid starts with `prefix`, or all: running and waiting ones. Who is not there
  /// is no error.
  virtual Expected<void> abort_prefix(const std::string& prefix) = 0;
  virtual Expected<void> abort_all() = 0;

  virtual Expected<void> pause(PauseMode mode) = 0;
  virtual Expected<void> resume() = 0;
  /// False when requests are running.
  virtual Expected<bool> flush_cache() = 0;

  /// Gives the memory of keys and values back. Nothing is computed until wake(): requests wait,
  /// those that ran go back in line and keep their tokens. SGLang: release_memory_occupation and
  /// resume_memory_occupation with the tag kv_cache.
  virtual Expected<void> sleep() = 0;
  /// The engine sleeps on when the memory is not free.
  virtual Expected<void> wake() = 0;

  /// All or nothing: after an error the engine, its weights and its requests are as before.
  virtual Expected<void> update_weights(const WeightUpdate& update) = 0;

  /// Checksums of the weights that the engine computes with, taken between two steps. Of kCompare an error
  /// names the tensors that differ. What has no weights, or not for its callers, refuses.
  virtual Expected<WeightChecksums> check_weights(WeightCheck /*check*/) {
    return failure("this engine does not let its weights be looked at");
  }

  /// At most so many rows (numbers of a vector) of a tensor, by its name in the model's files.
  virtual Expected<WeightRows> read_weight(const std::string& /*name*/, int64_t /*most_rows*/) {
    return failure("this engine does not let its weights be looked at");
  }

  /// Of the last update that this client knows of.
  virtual WeightVersion weight_version() const = 0;
  virtual Expected<EngineLoad> load() const = 0;
};

/// For callers that have no other engine to turn to: the value, or the error as an exception.
template <typename T>
T or_throw(Expected<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace slime::engine
