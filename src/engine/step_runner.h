#pragma once

/// One step of the engine on a device: the chunks' tokens through the network in one packed batch,
/// then the next tokens of those that are complete, and the log-probs of prompt tokens for those
/// who asked.
///
/// A step is launched and collected separately, so that a device with its own clock computes one
/// step while the host publishes the one before and plans the next. The token that a launched step
/// draws is not known yet when the next one is planned: requests hold kPendingToken in its place,
/// and the device fills it in itself. Owned by the engine's thread.

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/expected.h"
#include "core/weight_checksums.h"
#include "engine/drafts/draft.h"
#include "engine/scheduler.h"
#include "kernels/cpu/sample.h"
#include "model/eagle3.h"
#include "model/network.h"
#include "model/tensor_update.h"

namespace slime::engine {

/// New numbers for a network, in its formats.
using FreshWeights = model::WeightBuffers;

/// Rows [begin, end) of a request, and its pages from that of `begin` on.
struct CachedRows {
  int64_t begin = 0, end = 0;
  std::span<const PageId> pages;
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;

  /// Copies all layers of a page (for a request that continues in the middle of a page somebody
  /// else filled), after the steps launched so far.
  virtual void copy_page(PageId from, PageId to) = 0;

  /// The same with the state of a request, in networks that have states.
  virtual void copy_state(StateId /*from*/, StateId /*to*/) {
    throw BugError("this runner's networks have no states");
  }

  /// Starts a step. True: the next step may be launched before this one is collected (one at most).
  /// False: collect first.
  virtual bool launch(std::span<const Chunk> chunks) = 0;

  /// Whether the last launch() took as long as such a launch takes again: the first ones of a number of rows may
  /// be prepared for those that follow.
  virtual bool was_usual_launch() const { return true; }

  /// Waits for the oldest launched step. A token per chunk, in order; nothing for those that draw
  /// none. Does not touch the requests.
  virtual std::vector<std::optional<kernels::SampledToken>> collect() = 0;

  /// Log-probs of prompt tokens from the step that was collected last: what a chunk of it scored
  /// (engine/prompt_scores.h), in order. Once, before the next call of launch().
  virtual std::vector<kernels::SampledToken> take_scores(std::size_t chunk);

  /// Chunks may have drafts, those of requests of which it says so.
  virtual bool verifies_drafts() const { return false; }
  virtual bool verifies_drafts_of(const Request& /*request*/) const { return verifies_drafts(); }
  /// What the step that was collected last drew behind each draft of a chunk, in order; the token before
  /// the first draft is collect()'s. Once, before the next call of launch().
  virtual std::vector<kernels::SampledToken> take_behind_drafts(std::size_t chunk);

  /// Steps in training arithmetic have the bits of the trainer's forward pass: Chunk::arithmetic, where
  /// StepRunnerConfig::verify_tokens is not 0. They have prompts, and chunks with drafts: tokens that
  /// fast steps drew, whose keys and values are written again.
  virtual bool has_exact_steps() const { return false; }

  /// Chunks may feed a draft layer, which the network computes, or a draft model.
  virtual bool has_draft_layer() const { return false; }
  /// What it foretold in the step that was collected last: the tokens behind the last one that a chunk
  /// drew and that is right, Chunk::num_foretold of them. Once, before the next call of launch().
  virtual std::vector<Draft> take_foretold(std::size_t chunk);

  /// The engine's other ranks read their slices of a checkpoint, for the copy_weights() that follows.
  /// Whoever brings weights, one at a time.
  virtual Expected<void> load_elsewhere(const std::filesystem::path& /*directory*/) { return {}; }
  /// The same with some tensors: `changed` are this rank's weights with them in it. The others begin with the
  /// weights that run where it `begins`, otherwise with what the change before left.
  virtual Expected<void> change_elsewhere(const model::TensorUpdate& /*update*/,
                                          const model::Weights& /*changed*/, bool /*begins*/) {
    return {};
  }
  /// Copies new weights over those of the network: the steps launched so far compute with the old
  /// ones, the next with the new ones. `fresh` is read until wait_for_weights(). The
  /// engine's thread.
  virtual void copy_weights(const FreshWeights& fresh) = 0;
  /// Steps from here on compute with another network of the same shape, whose weights are complete;
  /// those launched so far read the one before until wait_for_weights(). The engine's thread.
  virtual void exchange_network(model::Network& network) = 0;
  /// Waits for the copy that began last, or for the steps before the last exchange; the seconds that the
  /// copy took on the device, 0 without one. Any thread, but not while another begins.
  virtual double wait_for_weights() = 0;

  /// Of all tensors of the model, of which `weights` are this rank's and the ones that run; `resets`: they
  /// become random numbers first (model/weight_checksums.h). No step is in flight. The engine's thread.
  virtual WeightChecksums checksums_of(model::Weights& weights, bool resets);

  /// Forgets launched steps after an error.
  virtual void reset() = 0;

  /// Gives the memory of keys and values back, and their contents up, until resume_memory(). No
  /// step is in flight.
  virtual void release_memory() = 0;
  virtual void resume_memory() = 0;

  virtual at::ScalarType kv_dtype() const = 0;

  /// Appends whom rows visited that collected steps computed (StepRunnerConfig::records_experts), before
  /// the step that was launched after those is collected.
  virtual void append_experts(const CachedRows& rows, std::vector<int16_t>& out) const;
};

struct StepRunnerConfig {
  at::ScalarType kv_dtype = at::kFloat;
  int64_t num_pages = 0;
  int64_t num_states = 0;
  int64_t num_window_groups = 0;  // PageWindow::num_groups
  int64_t max_running_requests = 0;
  int64_t max_prefill_tokens = 0;
  int64_t most_drafts = 0;  // of a chunk
  int64_t context_length = 0;
  bool shares_prompt_reads = true;  // on a GPU (kernels/gpu/decode_units.h)
  bool records_steps = true;        // on a GPU
  bool records_experts = false;
  /// Of several ranks another one records them: then none leaves rows of the last layer out.
  bool computes_all_rows = false;
  /// EngineConfig::verify_tokens. A step in training arithmetic has at most max_prefill_tokens rows of
  /// chunks with several, one row of others, and draws at each row of a draft.
  int64_t verify_tokens = 0;
  std::vector<TokenId> eos_ids;
  /// On a CPU, of one rank: chunks may feed it in the place of a draft layer. Null: there is none.
  std::shared_ptr<const model::Eagle3> draft_model;
};

/// The precision of the cache for a kv_cache_dtype of EngineConfig. On a GPU the attention kernels
/// read it in the precision of the activations, or in fp8.
at::ScalarType kv_storage_type(const std::string& kv_cache_dtype, model::Network& network);

/// What one page takes on the network's device, over its layers: all, or those of a group where there
/// are `num_window_groups` beside the one of layers that see all tokens (engine/cache_groups.h).
int64_t kv_page_bytes(model::Network& network, at::ScalarType kv_dtype,
                      int64_t num_window_groups = 0);

/// For the device that the weights are on. `network` must outlive it; others may change its weights
/// while no step is in flight.
std::unique_ptr<StepRunner> make_step_runner(model::Network& network,
                                             const StepRunnerConfig& config);

/// True when the chunk's request gets a token from this step.
inline bool draws_token(const Chunk& chunk) {
  return chunk.completes() && chunk.request->client.sampling.max_new_tokens > 0;
}

}  // namespace slime::engine
