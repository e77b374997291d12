#pragma once

/// Configuration of an engine.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "core/tensor.h"
#include "engine/drafts/draft_settings.h"
#include "engine/page_window.h"
#include "engine/stop_checker.h"
#include "engine/token_constraint.h"
#include "model/eagle3.h"
#include "model/network.h"

namespace slime::engine {

class ServedAdapters;

/// What an engine does at a moment.
enum class Activity { kIdle, kGenerates, kPaused };

struct EngineConfig {
  int64_t max_running_requests = 128;   // decode together; more wait
  int64_t max_queued_requests = 65536;  // in line; beyond this, kQueueFull
  int64_t max_prefill_tokens =
      512;  // prompt tokens per step: longer prompts are computed in chunks
  /// The same in steps in which a request decodes, whose next token waits for them; 0: no other number.
  int64_t prefill_beside_decode = 0;
  int64_t kv_cache_bytes = int64_t{2} << 30;  // with the states of requests, where layers keep some
  /// "auto" (that of the weights, float32 for float16 ones on the CPU), "float32", "bfloat16", or
  /// "fp8_e4m3": GPU only, half the memory, no scales.
  std::string kv_cache_dtype = "auto";
  /// CPU threads of its kernels alone; 0: the process's, together with a trainer.
  int64_t num_threads = 0;
  int64_t context_length = 0;  // 0: the model's max_position_embeddings
  bool enable_prefix_cache = true;
  /// Behind sliding windows, while requests run. False: they keep what they have, for comparisons.
  bool gives_pages_back = true;
  bool shares_prompt_reads = true;  // GPU: requests with the same prefix read it once per step
  bool records_steps =
      true;  // GPU: decode steps are recorded once and replayed; false: for comparisons
  /// GPU, or weights in other formats: a second buffer from the start, into which new weights are written
  /// while steps run, so that the engine stands still for a copy on the device alone. Without, an update
  /// that has to make formats allocates it. Beside adapters there is none: they are copied from where they are.
  bool stages_weights = false;
  bool records_experts = false;  // for requests that want to know them
  DraftSettings drafts;
  /// With drafts.model: for this network (model::load_eagle3). Updates of weights leave it as it is.
  std::shared_ptr<const model::Eagle3> draft_model;
  /// So many tokens of a request are drawn by fast steps before one in the trainer's arithmetic verifies
  /// them, which alone says what the response is (docs/decisions/0167-verification.md). 0: every step is
  /// as fast as it can be, and its draws are the response.
  int64_t verify_tokens = 0;
  /// Of the engine's ranks, of which this is the first (engine/ranks/followers.h); it outlives the
  /// engine, whose thread meets the others on it.
  const comm::Mesh* mesh = &comm::Mesh::single();
  std::vector<TokenId> eos_token_ids;  // empty: the model's
  uint64_t seed = 0;                   // of requests without sampling_seed
  TokenBytesFn token_bytes;            // needed by stop strings only
  /// Of the network, which requests may name; outlives the engine. Null: they may name none.
  const ServedAdapters* adapters = nullptr;
  /// Null: requests with a grammar are refused.
  std::shared_ptr<ConstraintSource> constraints;
  /// From now on it does this: called on the engine's thread when that changes. Does little.
  std::function<void(Activity)> on_activity;
};

/// The settings with the model's own filled in. Throws ConfigError with every problem.
EngineConfig completed(EngineConfig config, model::Network& network);

/// How keys and values are stored.
at::ScalarType kv_storage_type(const EngineConfig& config, model::Network& network);

/// Where layers keep a state of each request: room for the running ones and as many snapshots of
/// prefixes, within half of the budget; 0 elsewhere.
int64_t num_states_of(const EngineConfig& config, model::Network& network);

int64_t num_states_of(int64_t kv_cache_bytes, int64_t state_bytes, int64_t max_running_requests,
                      bool shares_prefixes);

/// What requests give back, and so how layers are grouped in pages.
PageWindow page_window(const EngineConfig& config, const model::Network& network);

/// Bytes of a page in all layers that it has keys of: the network's, and the draft model's.
int64_t cache_page_bytes(const EngineConfig& config, model::Network& network);

/// As many pages as the rest of the budget affords.
int64_t num_pages_of(const EngineConfig& config, model::Network& network);

}  // namespace slime::engine
