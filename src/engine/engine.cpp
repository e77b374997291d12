#include "engine/engine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "core/error.h"
#include "core/out_of_memory.h"
#include "engine/cache_shape.h"
#include "engine/sampler.h"
#include "engine/sampling_params.h"
#include "kernels/cpu/paged_attention.h"
#include "kernels/gpu/gpu.h"
#include "kernels/trace.h"

namespace slime::engine {
namespace {

using Cause = FinishReason::Cause;

constexpr const char* kShuttingDown = "the engine is shutting down";

FinishReason out_of_length() {
  FinishReason reason;
  reason.kind = FinishReason::Kind::kLength;
  return reason;
}

FinishReason queue_is_full(const EngineConfig& config) {
  return aborted(Cause::kQueueFull, fmt::format("the queue is full ({} requests); try again later",
                                                config.max_queued_requests));
}

std::string text_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

at::ScalarType storage_of(const EngineConfig& config, model::Network& network) {
  return kv_storage_type(config.kv_cache_dtype, network);
}

/// Why the cache cannot be in fp8; empty when it can.
std::string why_no_fp8(model::Network& network) {
  if (!network.weights().flat().is_cuda())
    return "kv_cache_dtype = fp8_e4m3: needs a GPU; the CPU reads float32 and bfloat16";
  const auto weights = network.weights().flat().scalar_type();
  const kernels::RotaryShape heads = attention_heads(network);
  if (kernels::opened_gpu().has_tiled_attention(heads, weights)) return {};
  return fmt::format(
      "kv_cache_dtype = fp8_e4m3: needs heads of 64 or 128 and weights in bfloat16 or float16; "
      "these have {} and {}",
      heads.head_dim, c10::toString(weights));
}

/// Settings with the model's own filled in. Throws ConfigError with every problem.
EngineConfig completed(EngineConfig config, model::Network& network) {
  const model::ModelConfig& model = network.config();
  std::vector<std::string> problems;
  const auto require = [&](bool holds, std::string problem) {
    if (!holds) problems.push_back(std::move(problem));
  };
  if (config.context_length == 0) config.context_length = model.max_positions;
  if (config.eos_token_ids.empty()) config.eos_token_ids = model.eos_token_ids;
  require(config.max_running_requests >= 1,
          fmt::format("max_running_requests = {}: at least 1", config.max_running_requests));
  require(config.max_queued_requests >= 1,
          fmt::format("max_queued_requests = {}: at least 1", config.max_queued_requests));
  require(config.max_prefill_tokens >= 1,
          fmt::format("max_prefill_tokens = {}: at least 1", config.max_prefill_tokens));
  require(config.context_length >= 1 && config.context_length <= model.max_positions,
          fmt::format("context_length = {}: the model's rotary tables end at {}",
                      config.context_length, model.max_positions));
  require(config.kv_cache_dtype == "auto" || config.kv_cache_dtype == "float32" ||
              config.kv_cache_dtype == "bfloat16" || config.kv_cache_dtype == "fp8_e4m3",
          fmt::format("kv_cache_dtype = {}: auto, float32, bfloat16 or fp8_e4m3",
                      config.kv_cache_dtype));
  if (config.kv_cache_dtype == "fp8_e4m3") {
    const std::string reason = why_no_fp8(network);
    require(reason.empty(), reason);
  }
  const auto weights = network.weights().flat().scalar_type();
  const bool is_on_gpu = network.weights().flat().is_cuda();
  const auto cache_type = config.kv_cache_dtype == "float32" ? at::kFloat : at::kBFloat16;
  require(
      !is_on_gpu || config.kv_cache_dtype == "auto" || config.kv_cache_dtype == "fp8_e4m3" ||
          cache_type == weights,
      fmt::format("kv_cache_dtype = {}: on a GPU the cache has the precision of the weights, or "
                  "fp8_e4m3; leave it at auto",
                  config.kv_cache_dtype));
  require(weights != at::kDouble, "dtype = float64: the engine computes in float32 or bfloat16");
  const int64_t page_bytes = kv_page_bytes(network, storage_of(config, network));
  require(config.kv_cache_bytes >= page_bytes,
          fmt::format("kv_cache_bytes = {}: one page of {} tokens takes {} bytes",
                      config.kv_cache_bytes, kernels::kPageTokens, page_bytes));
  if (!problems.empty()) throw ConfigError(problems);
  return config;
}

/// Enough pages for every request that can run at once, within the budget.
int64_t num_pages_of(const EngineConfig& config, model::Network& network) {
  const int64_t affordable =
      config.kv_cache_bytes / kv_page_bytes(network, storage_of(config, network));
  return std::min<int64_t>(affordable, std::numeric_limits<PageId>::max());
}

std::string why_weights_differ(const std::vector<model::NamedWeight>& running,
                               const std::vector<model::NamedWeight>& fresh) {
  if (running.size() != fresh.size()) {
    return fmt::format("the checkpoint has {} tensors, the running model {}", fresh.size(),
                       running.size());
  }
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (running[i].name == fresh[i].name && running[i].shape == fresh[i].shape &&
        running[i].offset == fresh[i].offset) {
      continue;
    }
    return fmt::format("{} [{}] stands where the running model has {} [{}]", fresh[i].name,
                       fmt::join(fresh[i].shape, ", "), running[i].name,
                       fmt::join(running[i].shape, ", "));
  }
  return {};
}

}  // namespace

Engine::Engine(model::Network& network, const EngineConfig& config, const Clock& clock,
               const MakeStepRunner& make_runner)
    : network_(network),
      clock_(clock),
      config_(completed(config, network)),
      pool_(num_pages_of(config_, network)),
      runner_(make_runner(network, {.kv_dtype = storage_of(config_, network),
                                    .num_pages = pool_.num_pages(),
                                    .max_running_requests = config_.max_running_requests,
                                    .max_prefill_tokens = config_.max_prefill_tokens,
                                    .context_length = config_.context_length,
                                    .shares_prompt_reads = config_.shares_prompt_reads,
                                    .eos_ids = config_.eos_token_ids})),
      tree_(pool_, kernels::kPageTokens),
      scheduler_({.page_tokens = kernels::kPageTokens,
                  .max_running_requests = config_.max_running_requests,
                  .max_prefill_tokens = config_.max_prefill_tokens,
                  .shares_prefixes = config_.enable_prefix_cache},
                 pool_, tree_, clock,
                 [this](PageId from, PageId to) { runner_->copy_page(from, to); }),
      commands_(static_cast<std::size_t>(config_.max_queued_requests)) {
  max_request_tokens_ = std::min(config_.context_length, pool_.num_pages() * kernels::kPageTokens);
  window_start_ = last_step_ = clock_.now();
  refresh_load(0);
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  stopping_ = true;
  commands_.close();
  thread_.join();
}

void Engine::submit(GenerateRequest request, OnUpdate on_update) {
  Command command(Submit{std::move(request), std::move(on_update), clock_.now()});
  if (commands_.try_push(command)) return;
  auto& rejected = std::get<Submit>(command);
  GenerateUpdate update;
  update.rid = rejected.request.rid;
  update.finish = stopping_ ? aborted(Cause::kShuttingDown, kShuttingDown) : queue_is_full(config_);
  rejected.on_update(std::move(update));
}

Expected<void> Engine::abort(Abort abort) {
  if (is_own_thread()) {
    made_by_callbacks_.emplace_back([this, abort = std::move(abort)] { handle(abort); });
  } else if (!commands_.push(std::move(abort))) {
    return failure(kShuttingDown);
  }
  return {};
}

Expected<void> Engine::abort(const std::string& rid) { return abort({Abort::Who::kOne, rid}); }
Expected<void> Engine::abort_prefix(const std::string& prefix) {
  return abort({Abort::Who::kPrefix, prefix});
}
Expected<void> Engine::abort_all() { return abort({Abort::Who::kAll, {}}); }

bool Engine::run_exclusive(std::function<void()> body) {
  if (is_own_thread()) {
    made_by_callbacks_.push_back(std::move(body));
    return true;
  }
  auto done = std::make_shared<std::promise<void>>();
  auto future = done->get_future();
  if (!commands_.push(Call{std::move(body), std::move(done)})) return false;
  future.get();
  return true;
}

Expected<void> Engine::control(std::function<void()> body) {
  try {
    if (!run_exclusive(std::move(body))) return failure(kShuttingDown);
    return {};
  } catch (const BugError&) {
    throw;
  } catch (const std::exception& error) {
    return failure(text_of(error));
  }
}

Expected<void> Engine::pause(PauseMode mode) {
  return control([this, mode] {
    is_paused_ = true;
    if (mode == PauseMode::kAbort)
      finish_all(aborted(Cause::kRequested, "aborted by pause_generation"));
    if (mode == PauseMode::kRetract) scheduler_.retract_all(/*keeps_prefixes=*/true);
    refresh_load(0);
  });
}

Expected<void> Engine::resume() {
  return control([this] {
    is_paused_ = false;
    refresh_load(0);
  });
}

Expected<bool> Engine::flush_cache() {
  auto flushed = std::make_shared<bool>(false);
  const Expected<void> done = control([this, flushed] {
    if (scheduler_.num_running() > 0) return;
    tree_.clear();
    refresh_load(0);
    *flushed = true;
  });
  if (!done) return tl::make_unexpected(done.error());
  return *flushed;
}

Expected<void> Engine::sleep() {
  return control([this] {
    if (is_asleep_) return;
    is_asleep_ = true;
    scheduler_.retract_all(/*keeps_prefixes=*/false);
    tree_.clear();
    runner_->release_memory();
    refresh_load(0);
  });
}

Expected<void> Engine::wake() {
  return control([this] {
    if (!is_asleep_) return;
    runner_->resume_memory();
    is_asleep_ = false;
    refresh_load(0);
  });
}

Expected<std::shared_ptr<model::Network>> Engine::load_same_shapes(
    const std::filesystem::path& directory) const {
  try {
    std::shared_ptr<model::Network> fresh = model::load_network(
        directory, {.weights = network_.weights().flat().scalar_type(), .activations = at::kFloat});
    const std::string difference =
        why_weights_differ(network_.weights().tensors(), fresh->weights().tensors());
    if (!difference.empty()) return failure(directory.string() + ": " + difference);
    return fresh;
  } catch (const BugError&) {
    throw;
  } catch (const std::exception& error) {
    return failure(text_of(error));
  }
}

Expected<void> Engine::update_weights(const WeightUpdate& update) {
  std::shared_ptr<model::Network> fresh;
  if (const auto* directory = std::get_if<FromDirectory>(&update.source)) {
    auto loaded = load_same_shapes(directory->path);
    if (!loaded) return tl::make_unexpected(loaded.error());
    fresh = std::move(*loaded);
  }
  return control([this, fresh, version = update.version, running = update.running,
                  stays_paused = update.stays_paused] {
    if (fresh != nullptr) {
      const at::NoGradGuard no_grad;
      Tensor target = network_.weights().flat();
      target.copy_(fresh->weights().flat());
    }
    if (running == RunningRequests::kAbort)
      finish_all(aborted(Cause::kRequested, "aborted by an update of the weights"));
    scheduler_.retract_all(/*keeps_prefixes=*/false);
    tree_.clear();
    version_ = version;
    is_paused_ |= stays_paused;
    refresh_load(0);
  });
}

Expected<EngineLoad> Engine::load() const {
  const std::lock_guard lock(load_mutex_);
  EngineLoad load = load_;
  const Clock::TimePoint now = clock_.now();
  load.seconds_since_step = seconds_between(last_step_, now);
  if (waits_since_) load.seconds_without_progress = seconds_between(*waits_since_, now);
  load.num_waiting += static_cast<int64_t>(commands_.size());
  return load;
}

bool Engine::has_work() const {
  return !in_flight_.empty() ||
         (may_step() && scheduler_.num_running() + scheduler_.num_waiting() > 0);
}

void Engine::run() {
  const at::NoGradGuard no_grad;
  while (!stopping_) {
    const bool is_busy = has_work();
    auto command = is_busy ? commands_.try_pop() : commands_.pop();
    if (!command.has_value() && !is_busy) break;  // closed
    if (command.has_value()) {
      for (; command.has_value(); command = commands_.try_pop()) handle(std::move(*command));
      refresh_load(0);
    }
    try {
      if (may_step()) step();
      if (!made_by_callbacks_.empty()) drain();
    } catch (const std::exception& error) {
      fail_all(error);
    }
    run_made_by_callbacks();
  }
  in_flight_.clear();
  runner_->reset();
  while (auto command = commands_.try_pop()) handle(std::move(*command));
  finish_all(aborted(Cause::kShuttingDown, kShuttingDown));
}

void Engine::fail_all(const std::exception& error) {
  in_flight_.clear();
  runner_->reset();
  // What the failed step should have written into pages is not there.
  scheduler_.retract_all(/*keeps_prefixes=*/false);
  tree_.clear();
  finish_all(aborted(is_out_of_memory(error) ? Cause::kOutOfMemory : Cause::kEngineFailed,
                     fmt::format("the engine failed: {}", text_of(error))));
  refresh_load(0);
}

/// Nobody waits for their outcome, so what fails there fails the requests.
void Engine::run_made_by_callbacks() {
  for (const auto& body : std::exchange(made_by_callbacks_, {})) {
    try {
      body();
    } catch (const std::exception& error) {
      fail_all(error);
    }
  }
}

void Engine::handle(Command command) {
  if (auto* submit = std::get_if<Submit>(&command)) return admit(std::move(*submit));
  if (auto* call = std::get_if<Call>(&command)) {
    drain_or_fail();  // who calls sees the engine between two steps
    try {
      call->body();
      refresh_load(0);  // whoever waits may look at it next
      call->done->set_value();
    } catch (...) {
      call->done->set_exception(std::current_exception());
    }
    return;
  }
  drain_or_fail();
  const Abort& abort = std::get<Abort>(command);
  for (Request* request : scheduler_.all()) {
    if (abort.matches(request->client.rid))
      finish(*request, aborted(Cause::kRequested, "aborted by the caller"));
  }
}

void Engine::admit(Submit submit) {
  GenerateRequest& client = submit.request;
  const uint64_t ordinal = num_submitted_++;
  if (client.rid.empty()) client.rid = fmt::format("request-{}", ordinal);
  const int64_t vocab_size = network_.config().vocab_size;
  const auto prompt_length = static_cast<int64_t>(client.input_ids.size());
  std::vector<std::string> problems = problems_of(client.sampling, vocab_size);
  if (prompt_length == 0) problems.emplace_back("input_ids is empty");
  const auto outside = std::find_if(client.input_ids.begin(), client.input_ids.end(),
                                    [&](TokenId id) { return id < 0 || id >= vocab_size; });
  if (outside != client.input_ids.end()) {
    problems.push_back(
        fmt::format("input_ids holds {}; the vocabulary has {} ids", *outside, vocab_size));
  }
  const bool draws = client.sampling.max_new_tokens > 0;
  if (prompt_length + (draws ? 1 : 0) > max_request_tokens_) {
    problems.push_back(fmt::format(
        "the prompt has {} tokens; prompt and response can have {} together ({})", prompt_length,
        max_request_tokens_,
        max_request_tokens_ == config_.context_length ? "context length" : "size of the KV cache"));
  }
  if (!client.sampling.stop.empty() && !config_.token_bytes) {
    problems.emplace_back(
        "stop strings need a tokenizer, and this engine has none; use stop_token_ids");
  }
  if (client.top_logprobs_num < 0 || client.top_logprobs_num > vocab_size) {
    problems.push_back(fmt::format("top_logprobs_num must be in [0, {}], got {}", vocab_size,
                                   client.top_logprobs_num));
  }
  if (scheduler_.find(client.rid) != nullptr)
    problems.push_back(fmt::format("rid {} is already running", client.rid));
  const bool is_full = scheduler_.num_waiting() >= config_.max_queued_requests;
  if (!problems.empty() || is_full) {
    GenerateUpdate update;
    update.rid = client.rid;
    update.prompt_tokens = prompt_length;
    update.finish = problems.empty()
                        ? queue_is_full(config_)
                        : aborted(Cause::kBadRequest, fmt::format("{}", fmt::join(problems, "; ")));
    submit.on_update(std::move(update));
    return;
  }
  auto request = std::make_unique<Request>();
  request->client = std::move(client);
  request->on_update = std::move(submit.on_update);
  request->submitted = submit.submitted;
  const SamplingParams& sampling = request->client.sampling;
  request->seed = sampling.sampling_seed.value_or(config_.seed);
  request->stream = sampling.sampling_seed.has_value() ? 0 : ordinal + 1;
  request->prompt_length = prompt_length;
  request->max_tokens =
      prompt_length + std::min(sampling.max_new_tokens, max_request_tokens_ - prompt_length);
  request->tokens = request->client.input_ids;
  request->tokens.reserve(request->max_tokens);
  request->stop =
      std::make_unique<StopChecker>(sampling, config_.eos_token_ids, config_.token_bytes);
  scheduler_.add(std::move(request));
}

void Engine::step() {
  std::vector<Chunk> chunks = scheduler_.plan_step();
  if (chunks.empty()) return drain();
  launch(std::move(chunks));
  while (in_flight_.size() > 1) collect();
}

void Engine::launch(std::vector<Chunk> chunks) {
  const kernels::TraceRange range("engine step");
  StepInFlight step;
  const bool runs_ahead = runner_->launch(chunks);
  int64_t num_drawn = 0;
  for (const Chunk& chunk : chunks) {
    Request& request = *chunk.request;
    StepInFlight::Part part{&request, chunk.completes(),
                            static_cast<int64_t>(request.tokens.size())};
    const bool draws = draws_token(chunk);
    scheduler_.advance(chunk);
    if (draws) {
      request.drawn_row = num_drawn++;
      request.tokens.push_back(kPendingToken);
      request.draws_last = static_cast<int64_t>(request.tokens.size()) >= request.max_tokens;
    }
    step.parts.push_back(part);
  }
  in_flight_.push_back(std::move(step));
  if (!runs_ahead) drain();
}

void Engine::drain() {
  while (!in_flight_.empty()) collect();
}

void Engine::drain_or_fail() {
  try {
    drain();
  } catch (const std::exception& error) {
    fail_all(error);
  }
}

void Engine::collect() {
  const kernels::TraceRange range("engine collect");
  std::vector<std::optional<kernels::SampledToken>> tokens = runner_->collect();
  const StepInFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  int64_t num_decoded = 0;
  for (std::size_t i = 0; i < step.parts.size(); ++i) {
    const auto& [request, completes, position] = step.parts[i];
    if (request == nullptr || !completes) continue;
    num_decoded += tokens[i].has_value() ? 1 : 0;
    publish(*request, position, std::move(tokens[i]));
  }
  ++steps_done_;
  {
    const std::lock_guard lock(load_mutex_);
    last_step_ = clock_.now();
    waits_since_ = last_step_;
  }
  refresh_load(num_decoded);
}

void Engine::publish(Request& request, int64_t position,
                     std::optional<kernels::SampledToken> drawn) {
  GenerateUpdate& pending = request.pending;
  if (!drawn.has_value()) return finish(request, out_of_length());
  kernels::SampledToken& token = *drawn;
  if (std::isnan(token.log_prob)) {
    request.tokens.resize(position);
    return finish(request,
                  aborted(Cause::kEngineFailed,
                          "the network's logits are not numbers; have the weights diverged?"));
  }
  request.tokens[position] = token.id;
  pending.output_ids.push_back(token.id);
  if (request.client.return_logprob) pending.output_log_probs.push_back(token.log_prob);
  if (request.client.top_logprobs_num > 0) pending.output_top.push_back(std::move(token.top));
  if (request.client.return_top_p_token_ids) {
    pending.top_p_counts.push_back(static_cast<int64_t>(token.kept_ids.size()));
    pending.top_p_ids.insert(pending.top_p_ids.end(), token.kept_ids.begin(), token.kept_ids.end());
  }
  const WeightVersion version = version_.load();
  if (pending.versions.empty() || pending.versions.back().version != version)
    pending.versions.push_back({version, 0});
  ++pending.versions.back().num_tokens;
  if (has_penalties(request.client.sampling)) ++request.output_counts[token.id];

  if (auto reason = request.stop->push(token.id)) {
    request.tokens.resize(position + 1);  // without the surplus token of the step in flight
    return finish(request, std::move(*reason));
  }
  if (position + 1 >= request.max_tokens) return finish(request, out_of_length());
  const int64_t interval = request.client.stream_interval;
  if (interval > 0 && static_cast<int64_t>(pending.output_ids.size()) >= interval) deliver(request);
}

void Engine::deliver(Request& request) {
  GenerateUpdate update = std::exchange(request.pending, {});
  update.rid = request.client.rid;
  update.prompt_tokens = request.prompt_length;
  update.cached_tokens = request.cached_tokens;
  update.num_retractions = request.num_retractions;
  const Clock::TimePoint now = clock_.now();
  update.queue_seconds = seconds_between(request.submitted, request.admitted.value_or(now));
  update.total_seconds = seconds_between(request.submitted, now);
  request.on_update(std::move(update));
}

void Engine::finish(Request& request, FinishReason reason) {
  for (StepInFlight& step : in_flight_) {
    for (auto& part : step.parts) {
      if (part.request == &request) part.request = nullptr;
    }
  }
  request.num_computed =
      std::min(request.num_computed, static_cast<int64_t>(request.tokens.size()));
  const std::unique_ptr<Request> taken = scheduler_.remove(request);
  taken->pending.finish = std::move(reason);
  deliver(*taken);
}

void Engine::finish_all(const FinishReason& reason) {
  for (Request* request : scheduler_.all()) finish(*request, reason);
}

void Engine::refresh_load(int64_t num_decoded) {
  const Clock::TimePoint now = clock_.now();
  window_tokens_ += num_decoded;
  const double seconds = seconds_between(window_start_, now);
  if (seconds >= 1.0) {
    tokens_per_second_ = static_cast<double>(window_tokens_) / seconds;
    window_tokens_ = 0;
    window_start_ = now;
  }
  const std::lock_guard lock(load_mutex_);
  load_.num_running = scheduler_.num_running();
  load_.num_waiting = scheduler_.num_waiting();
  load_.num_kv_tokens = pool_.num_pages() * kernels::kPageTokens;
  load_.num_kv_tokens_used = (pool_.num_pages() - pool_.num_available()) * kernels::kPageTokens;
  load_.steps_done = steps_done_;
  load_.decode_tokens_per_second = tokens_per_second_;
  load_.is_paused = !may_step();
  if (!has_work()) {
    waits_since_.reset();
  } else if (!waits_since_) {
    waits_since_ = now;
  }
}

}  // namespace slime::engine
