#include "engine/step_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "comm/rank_group.h"
#include "core/error.h"
#include "core/out_of_memory.h"
#include "engine/error_text.h"
#include "engine/prompt_scores.h"
#include "engine/request_updates.h"
#include "kernels/cpu/paged_attention.h"
#include "kernels/trace.h"

namespace slime::engine {

using Cause = FinishReason::Cause;

namespace {

/// A step waits so long for masks: the one before is computed meanwhile. A mask of a state of the grammar
/// that no text was in before takes longer, and its row goes into a later step.
constexpr std::chrono::milliseconds kMaskWait{1};
/// Where there is nothing else to do. Calls and aborts wait for it.
constexpr std::chrono::milliseconds kLoneMaskWait{10};
constexpr int kMaskThreads = 2;

/// An engine whose ranks do not reach one another says nothing about its requests.
Cause cause_of(const std::exception& error) {
  if (dynamic_cast<const comm::GroupError*>(&error) != nullptr) return Cause::kEngineLost;
  return is_out_of_memory(error) ? Cause::kOutOfMemory : Cause::kEngineFailed;
}

/// Of a step of nothing but decode; 0: prompts are in it.
int64_t decode_rows_of(std::span<const Chunk> chunks) {
  int64_t rows = 0;
  for (const Chunk& chunk : chunks) {
    if (chunk.num_tokens - chunk.num_drafts > 1) return 0;
    rows += chunk.num_tokens;
  }
  return rows;
}

}  // namespace

StepPipeline::StepPipeline(model::Network& network, const EngineConfig& config, const Clock& clock,
                           EngineProgress& progress, const MakeStepRunner& make_runner)
    : clock_(clock),
      progress_(progress),
      pool_(num_pages_of(config, network)),
      states_(num_states_of(config, network)),
      runner_(make_runner(network, {.kv_dtype = kv_storage_type(config, network),
                                    .num_pages = pool_.num_pages(),
                                    .num_states = states_.num_states(),
                                    .num_window_groups = page_window(config, network).num_groups,
                                    .max_running_requests = config.max_running_requests,
                                    .max_prefill_tokens = config.max_prefill_tokens,
                                    .most_drafts = config.drafts.most,
                                    .context_length = config.context_length,
                                    .shares_prompt_reads = config.shares_prompt_reads,
                                    .records_steps = config.records_steps,
                                    .records_experts = config.records_experts,
                                    .verify_tokens = config.verify_tokens,
                                    .eos_ids = config.eos_token_ids,
                                    .draft_model = config.draft_model})),
      tree_(pool_, kernels::kPageTokens, states_.num_states() > 0 ? &states_ : nullptr,
            page_window(config, network)),
      scheduler_(
          {.page_tokens = kernels::kPageTokens,
           .max_running_requests = config.max_running_requests,
           .max_prefill_tokens = config.max_prefill_tokens,
           .prefill_beside_decode = config.prefill_beside_decode,
           .shares_prefixes = config.enable_prefix_cache,
           .window = page_window(config, network),
           .rotary_switch = {network.config().rotary_switch(), network.config().max_positions},
           .verify_tokens = config.verify_tokens},
          pool_, tree_, clock, [this](PageId from, PageId to) { runner_->copy_page(from, to); },
          states_.num_states() > 0 ? &states_ : nullptr,
          [this](StateId from, StateId to) { runner_->copy_state(from, to); }),
      admission_(config, network, pool_.num_pages()),
      mask_threads_(kMaskThreads) {
  if (config.drafts.most > 0) {
    check(runner_->verifies_drafts(), "the runner of an engine with drafts verifies them");
    if (config.drafts.foretells() && !runner_->has_draft_layer())
      throw ConfigError("this engine's runner computes no draft layer and no draft model");
    if (states_.num_states() == 0) drafts_.emplace(config.drafts);
  }
  if (config.verify_tokens > 0) {
    if (!runner_->has_exact_steps())
      throw ConfigError("verify_tokens: this engine's device has no steps in training arithmetic");
    rounds_.emplace(config.max_prefill_tokens);
  }
  report();
}

bool StepPipeline::has_work() const {
  return !in_flight_.empty() ||
         (may_step() && scheduler_.num_running() + scheduler_.num_waiting() > 0);
}

std::vector<Chunk> StepPipeline::plan() {
  if (!rounds_) return scheduler_.plan_step();
  if (!rounds_->ends_with(scheduler_)) return scheduler_.plan_ahead();
  // Tokens are known before they are verified.
  if (std::ranges::any_of(in_flight_, &StepInFlight::is_fast)) drain();
  return scheduler_.plan_step();
}

void StepPipeline::step() {
  if (!may_step()) return;
  Clock::TimePoint planned;
  if (drafts_) {
    planned = clock_.now();
    // Drafts follow the last token.
    if (drafts_->wants_known_tokens()) {
      holds_updates_ = runs_ahead_;
      drain();
    }
  }
  std::vector<Chunk> chunks = plan();
  admission_.note_line(scheduler_.num_waiting() > 0);
  mask_tokens(chunks);
  if (chunks.empty()) {
    tell_held();
    return drain();
  }
  if (drafts_) {
    drafts_->add_drafts(chunks, scheduler_, [this](const Request& request) {
      return runner_->verifies_drafts_of(request);
    });
  }
  launch(std::move(chunks), planned);
  while (in_flight_.size() > 1) collect();
}

void StepPipeline::launch(std::vector<Chunk> chunks, Clock::TimePoint planned) {
  const kernels::TraceRange range("engine step");
  StepInFlight step{.parts = {},
                    .version = version_,
                    .is_fast = !chunks.empty() && chunks.front().is_tentative,
                    .planned = planned};
  if (drafts_) step.decode_rows = decode_rows_of(chunks);
  for (const Chunk& chunk : chunks) {
    const auto& adapter = chunk.request->adapter;
    if (adapter && !std::ranges::count(step.adapters, adapter)) step.adapters.push_back(adapter);
  }
  beside_steps([&] { runs_ahead_ = runner_->launch(chunks); });
  int64_t num_sampled = 0;
  for (const Chunk& chunk : chunks) {
    Request& request = *chunk.request;
    const bool draws = draws_token(chunk);
    StepInFlight::Part part{
        .request = &request,
        .completes = chunk.completes(),
        .position = static_cast<int64_t>(request.tokens.size()) - chunk.num_drafts,
        .num_scores = begin_scores(chunk),
        .is_tentative = chunk.is_tentative,
        .round = request.tentative.round,
        .is_foretold = chunk.num_foretold > 0};
    part.drafts.assign(request.tokens.begin() + part.position, request.tokens.end());
    request.tokens.resize(static_cast<std::size_t>(part.position));
    request.verifies_drafts = chunk.num_drafts > 0;
    if (request.client.return_routed_experts && part.completes) {
      part.first_page = request.num_routed / kernels::kPageTokens;
      part.pages.assign(request.pages.begin() + part.first_page, request.pages.end());
    }
    if (!chunk.is_tentative) {
      if (rounds_) request.tentative.close();
    } else if (!request.tentative.is_open()) {
      request.tentative.begin = part.position;
    }
    scheduler_.advance({.request = &request,
                        .num_tokens = chunk.num_tokens - chunk.num_drafts,
                        .is_tentative = chunk.is_tentative});
    if (draws) {
      request.sampled_row = num_sampled++;
      request.tokens.push_back(kPendingToken);
      request.draws_last = static_cast<int64_t>(request.tokens.size()) >= request.max_tokens;
    }
    step.parts.push_back(std::move(part));
  }
  in_flight_.push_back(std::move(step));
  if (drafts_ && !runner_->was_usual_launch()) {
    // The one before is collected later too.
    for (StepInFlight& each : in_flight_) each.decode_rows = 0;
  }
  tell_held();
  if (!runs_ahead_) drain();
}

void StepPipeline::begin_mask(Request& request) {
  const auto words = static_cast<std::size_t>(mask_words(admission_.vocab_size()));
  if (!request.next_mask) request.next_mask = mask_threads_.begin(request.constraint, words);
}

void StepPipeline::mask_tokens(std::vector<Chunk>& chunks) {
  using Allowed = TokenConstraint::Allowed;
  const auto is_slow = [](const Request& request) {
    return request.constraint != nullptr && !request.constraint->is_quick();
  };
  // Also of those whose prompt goes on: it is there when it is needed.
  for (const Chunk& chunk : chunks)
    if (chunk.request->next_mask || is_slow(*chunk.request)) begin_mask(*chunk.request);
  const bool others_wait = !in_flight_.empty() || std::ranges::any_of(chunks, [&](const Chunk& it) {
    return it.request->constraint == nullptr || !draws_token(it);
  });
  const auto deadline =
      std::chrono::steady_clock::now() + (others_wait ? kMaskWait : kLoneMaskWait);
  std::erase_if(chunks, [&](const Chunk& chunk) {
    Request& request = *chunk.request;
    if (request.constraint == nullptr || !draws_token(chunk)) return false;
    Allowed allowed = Allowed::kNone;
    if (request.next_mask) {
      if (!mask_threads_.wait(*request.next_mask, deadline)) return true;
      request.allowed_W = std::move(request.next_mask->words);
      allowed = request.next_mask->allowed;
      request.next_mask = nullptr;
    } else {
      request.allowed_W.assign(static_cast<std::size_t>(mask_words(admission_.vocab_size())), 0);
      allowed = request.constraint->allow(request.allowed_W);
    }
    if (allowed == Allowed::kAny) request.allowed_W.clear();
    if (allowed != Allowed::kNone) return false;
    finish(request, request.constraint->is_over()
                        ? FinishReason{}
                        : aborted(Cause::kBadRequest, request.constraint->problem()));
    return true;
  });
}

void StepPipeline::drain() {
  while (!in_flight_.empty()) collect();
}

void StepPipeline::drain_or_fail() {
  try {
    drain();
  } catch (const std::exception& error) {
    fail_all(error);
  }
}

void StepPipeline::finish(Request& request, FinishReason reason) {
  for (StepInFlight& step : in_flight_) {
    for (auto& part : step.parts) {
      if (part.request == &request) part.request = nullptr;
    }
  }
  request.num_computed =
      std::min(request.num_computed, static_cast<int64_t>(request.tokens.size()));
  if (drafts_ && request.num_new_tokens() > 0) drafts_->follow(request);
  std::unique_ptr<Request> taken = scheduler_.remove(request);
  taken->pending.finish = std::move(reason);
  tell(std::move(taken));
}

void StepPipeline::finish_if(const std::function<bool(const Request&)>& matches,
                             const FinishReason& reason) {
  for (Request* request : scheduler_.all()) {
    if (matches(*request)) finish(*request, reason);
  }
}

void StepPipeline::finish_all(const FinishReason& reason) {
  for (Request* request : scheduler_.all()) finish(*request, reason);
}

void StepPipeline::forget_launched() {
  const auto forgotten =
      std::exchange(in_flight_, {});  // their adapters stay until they have ended
  runner_->reset();
}

void StepPipeline::fail_all(const std::exception& error) {
  forget_launched();
  tell_held();
  // What the failed step should have written into pages is not there.
  scheduler_.retract_all(/*keeps_prefixes=*/false);
  tree_.clear();
  finish_all(aborted(cause_of(error), fmt::format("the engine failed: {}", text_of(error))));
  report();
}

void StepPipeline::pause(PauseMode mode) {
  is_paused_ = true;
  if (mode == PauseMode::kAbort)
    finish_all(aborted(Cause::kRequested, "aborted by pause_generation"));
  if (mode == PauseMode::kRetract) scheduler_.retract_all(/*keeps_prefixes=*/true);
  report();
}

void StepPipeline::resume() {
  is_paused_ = false;
  report();
}

bool StepPipeline::flush_cache() {
  if (scheduler_.num_running() > 0) return false;
  tree_.clear();
  report();
  return true;
}

void StepPipeline::sleep() {
  if (is_asleep_) return;
  is_asleep_ = true;
  scheduler_.retract_all(/*keeps_prefixes=*/false);
  tree_.clear();
  runner_->release_memory();
  report();
}

void StepPipeline::wake() {
  if (!is_asleep_) return;
  runner_->resume_memory();
  is_asleep_ = false;
  report();
}

void StepPipeline::change_weights(const FreshWeights& fresh, model::Network* other,
                                  RunningRequests running, WeightVersion version,
                                  bool stays_paused) {
  // Weights that changed in place are there already, and must not be under a step.
  const bool is_behind_steps = fresh.defined() || other != nullptr;
  const bool scores = std::ranges::any_of(in_flight_, [](const StepInFlight& step) {
    return std::ranges::any_of(step.parts, [](const auto& part) { return part.num_scores > 0; });
  });
  const bool goes_on =
      running == RunningRequests::kKeep && is_behind_steps && !stays_paused && !scores;
  if (!goes_on) drain_or_fail();
  if (fresh.defined()) runner_->copy_weights(fresh);
  if (other != nullptr) runner_->exchange_network(*other);
  if (running == RunningRequests::kAbort)
    finish_all(aborted(Cause::kRequested, "aborted by an update of the weights"));
  for (Request* request : scheduler_.all()) forget_half_scores(*request);
  if (running == RunningRequests::kRecompute) scheduler_.retract_all(/*keeps_prefixes=*/false);
  if (running == RunningRequests::kDrop) scheduler_.drop_all();
  tree_.clear();
  pool_.weights_changed();
  version_ = version;
  if (running == RunningRequests::kKeep) scheduler_.keep_running();
  is_paused_ |= stays_paused;
  report();
}

void StepPipeline::report(int64_t num_sampled) {
  if (scheduler_.num_waiting() == 0) admission_.note_line(false);
  const int64_t num_used = pool_.num_pages() - pool_.num_available();
  const auto tokens_in = [&](int64_t num_pages) {
    return num_pages * kernels::kPageTokens / scheduler_.window().num_tables();
  };
  progress_.update({.num_running = scheduler_.num_running(),
                    .num_waiting = scheduler_.num_waiting(),
                    .num_kv_tokens_used = tokens_in(num_used),
                    .num_kv_tokens = tokens_in(pool_.num_pages()),
                    .num_kv_tokens_given_back = scheduler_.num_tokens_given_back(),
                    .drafts = draft_counts_,
                    .is_paused = !may_step(),
                    .has_work = has_work()},
                   num_sampled);
}

}  // namespace slime::engine
