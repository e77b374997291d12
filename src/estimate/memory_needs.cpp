#include "estimate/memory_needs.h"

#include <algorithm>
#include <memory>

#include "config/eval_config.h"
#include "config/users_functions.h"
#include "core/divide_up.h"
#include "core/draft_words.h"
#include "engine/cache_shape.h"
#include "engine/drafts/draft_settings.h"
#include "engine/drawn_rows.h"
#include "engine/engine.h"
#include "engine/expert_pages.h"
#include "engine/gpu_sparse_attention.h"
#include "engine/step_runner.h"
#include "kernels/gpu/decode_units.h"
#include "kernels/gpu/latent_prompts.h"
#include "kernels/gpu/packed_prompts.h"
#include "kernels/gpu/recorded_rows.h"
#include "kernels/gpu/sparse.h"
#include "model/eagle3.h"
#include "setup/cache_precision.h"
#include "setup/evaluation_plan.h"

namespace slime::estimate {
namespace {

/// Of a recorded step: the driver keeps its launches' parameters.
constexpr int64_t kRecordedStepBytes = int64_t{8} << 20;
/// Products are timed on copies of their weights the first time they appear; at most so much at once.
constexpr int64_t kTimingBytes = int64_t{1} << 29;
/// Of the GPUs that there are, about.
constexpr int64_t kMultiprocessors = 132;
/// CUDA's context and torch's kernels in the process of the user's functions, and small tensors. The
/// logits that a loss may read are not in the plan: most never do, and what is free then is looked at.
constexpr int64_t kPythonContextBytes = int64_t{768} << 20;

/// Tokens of the longest prompt with its response, in training and evaluation.
int64_t longest_request(const config::RunConfig& config, const model::ModelConfig& model,
                        int64_t longest_prompt) {
  const int64_t limit = config.sglang_context_length.value_or(model.max_positions);
  const int64_t prompt =
      config.rollout_max_prompt_len.value_or(longest_prompt > 0 ? longest_prompt : limit);
  int64_t response = config.rollout_max_response_len.value_or(0);
  if (config.eval_interval && !(config.eval_prompt_data.empty() && config.eval_config.empty())) {
    for (const config::EvalSetConfig& set : config::eval_sets_of(config))
      response = std::max(response, set.max_response_len.value_or(response));
  }
  return std::min(limit, config.rollout_max_context_len.value_or(prompt + response));
}

/// Null where the run's engines compute none.
std::shared_ptr<const model::Eagle3> draft_model_of(const config::RunConfig& config,
                                                    const model::ModelConfig& model) {
  if (!config.names_draft_model() || !model.delta.in_layer.empty()) return nullptr;
  return model::outline_eagle3(config.rollout_draft_model.peek(), model, config::kDraftModelFlag);
}

/// Weights of the draft model, and what its passes hold: states of a step's rows, logits of its ids.
int64_t draft_model_bytes(const model::Eagle3& draft, const model::Precision& precision,
                          int64_t num_rows, int64_t num_drawn) {
  const auto stored = static_cast<int64_t>(c10::elementSize(precision.weights)),
             computed = static_cast<int64_t>(c10::elementSize(precision.activations));
  return draft.weights().num_elements() * stored +
         num_rows * draft.blocks().front().costs.passing * computed +
         num_drawn * draft.form().draft_vocab * 4;
}

void set_pages(const config::RunConfig& config, model::Network& network,
               const model::Precision& precision, std::shared_ptr<const model::Eagle3> draft,
               MemoryNeeds& needs) {
  engine::EngineConfig engine{
      .kv_cache_dtype = setup::kv_cache_dtype(config, precision.activations),
      .context_length = config.sglang_context_length.value_or(0),
      .records_experts = config.use_rollout_routing_replay};
  engine.drafts.model = draft != nullptr;
  engine.draft_model = std::move(draft);
  const engine::PageWindow window = engine::page_window(engine, network);
  const int64_t tables = window.num_tables();
  needs.kv_page_bytes = tables * engine::cache_page_bytes(engine, network);
  needs.state_bytes = engine::state_bytes(network.blocks());
  if (config.use_rollout_routing_replay && precision.device.is_cpu())
    needs.expert_page_bytes = tables * engine::expert_page_bytes(network);  // at most
  const int64_t longest = needs.longest_request,
                held = window.most_held(longest, config.sglang_chunked_prefill_size);
  needs.most_held =
      divide_up(window.num_full_tables() * longest + window.num_window_tables() * held, tables);
}

/// Requests of a rollout step in one of the run's engines, where nobody else asks them; groups are shared
/// out whole.
int64_t step_requests(const config::RunConfig& config) {
  const std::vector<config::UsersFunction> functions = config::users_functions(config);
  if (config.train_async || std::ranges::any_of(functions, &config::UsersFunction::is_of_samples) ||
      config::has_users_rollout(config))
    return config.sglang_max_running_requests;
  const int64_t prompts =
      std::max(config.rollout_batch_size.get(),
               config.over_sampling_batch_size.value_or(config.rollout_batch_size.get()));
  const int64_t engines =
      config.has_engine_on_each_rank() ? config.world_size() / config.ranks_of_own_engine() : 1;
  const int64_t groups = (prompts + engines - 1) / engines + (engines > 1 ? 1 : 0);
  return std::min(config.sglang_max_running_requests.get(), groups * config.n_samples_per_prompt);
}

/// At most so many tokens a rank computes together in training: its part of a micro-batch.
int64_t micro_batch_tokens(const config::RunConfig& config, int64_t longest) {
  const int64_t cp = config.context_parallel_size;
  const int64_t at_once = config.use_dynamic_batch_size
                              ? std::max(longest, cp * config.max_tokens_per_gpu.value_or(0))
                              : longest * config.micro_batch_size;
  return divide_up(std::min(longest * config.samples_per_step(), at_once), cp);
}

/// So many has the step that is recorded for up to `sampled` requests.
int64_t recorded_rows(int64_t sampled) {
  const auto& sizes = kernels::kRecordedRows;
  const auto at = std::lower_bound(sizes.begin(), sizes.end(), sampled);
  return at == sizes.end() ? sizes.back() : *at;
}

/// Sizes of steps that appear as `sampled` requests end one after another, and those of steps with drafts, of which
/// `drawn` rows are the most.
int64_t recorded_steps(int64_t sampled, int64_t drawn) {
  const auto sizes = [](int64_t rows) -> int64_t {
    return std::ranges::upper_bound(kernels::kRecordedRows, recorded_rows(rows)) -
           kernels::kRecordedRows.begin();
  };
  return sizes(sampled) + (drawn > sampled ? sizes(drawn) : 0);
}

/// As many as the run's engine ever has at once.
int64_t most_sampled(const config::RunConfig& config) {
  return config.eval_interval ? config.sglang_max_running_requests.get() : step_requests(config);
}

/// Rows of a step for `sampled` requests that draw, each with its drafts. A look: where the model has no draft layer,
/// --rollout-drafts has no effect.
int64_t drafted_rows(const config::RunConfig& config, int64_t sampled) {
  if (config.rollout_drafts.peek() == "none") return sampled;
  const int64_t most = sampled * (1 + config.rollout_draft_tokens.peek().value_or(kUsualDrafts));
  if (config.rollout_draft_always.peek()) return most;
  return std::max(sampled, std::min(most, engine::kMostDraftedRows));
}

/// The same of one that verifies: it has all tentative tokens of all requests, if they fit.
int64_t drawn_rows(const config::RunConfig& config, int64_t sampled) {
  const int64_t tentative = config.verify_tokens();
  if (tentative == 0) return drafted_rows(config, sampled);
  return std::min(sampled * (1 + tentative), sampled + config.sglang_chunked_prefill_size);
}

/// What prompts' products make for experts in codes (kernels/cuda/cuda_device_grouped.cpp): codes of the visits' rows, or, where
/// no kernel multiplies them, numbers of a layer's gates and ups. Experts in turns stay plain.
int64_t coded_expert_bytes(const config::RunConfig& config, const model::ModelConfig& model,
                           at::ScalarType activations) {
  const model::ExpertsConfig& experts = model.experts;
  if (!config.has_codes() || !model.has_experts() || experts.are_in_turns) return 0;
  const int64_t hidden = model.hidden_size;
  if (activations == at::kBFloat16 && hidden % 16 == 0 && experts.width % 16 == 0)
    return config.sglang_chunked_prefill_size * experts.per_token * hidden;
  return static_cast<int64_t>(c10::elementSize(activations)) * experts.count * 2 * experts.width *
         hidden;
}

/// Memory of the steps of an engine that draws for `sampled` requests of at most `longest` tokens at
/// once, besides keys and values: activations, logits, recordings, what packed attention gathers. `draft`: may be null.
int64_t engine_workspace_bytes(const config::RunConfig& config, const model::Network& network,
                               const model::Eagle3* draft, const model::Precision& precision,
                               int64_t sampled, int64_t longest) {
  const model::ModelConfig& model = network.config();
  const auto element = static_cast<int64_t>(c10::elementSize(precision.activations));
  int64_t row = 0;  // of a token on its way through the widest block
  for (const model::BlockNeeds& block : network.blocks())
    row = std::max(row, element * block.costs.passing);
  if (precision.device.is_cpu()) {
    const int64_t drawn = drawn_rows(config, sampled);
    const int64_t rows = config.sglang_chunked_prefill_size + drawn,
                  of_target = rows * row + drawn * model.vocab_size * 4;
    return draft == nullptr ? of_target
                            : of_target + draft_model_bytes(*draft, precision, rows, sampled);
  }
  const int64_t drawn = drafted_rows(config, sampled);
  const int64_t chunk = config.sglang_chunked_prefill_size;
  const model::CacheSpec& cache = engine::cache_of_tokens(network.blocks());
  const bool is_latent = cache.value_size == 0;
  const int64_t least = is_latent ? kernels::kLeastExpandedRows : kernels::kLeastPackedRows;
  const int64_t gathered = std::min(kernels::kMostGatheredRows, chunk / least * longest);
  int64_t of_gathered = cache.numbers_per_token(),
          of_chunk = cache.heads * cache.queries_per_head * cache.value_size, records = 0;
  if (is_latent) {
    // Gathered latents are expanded and put together; rows have both forms of queries and results.
    const model::LatentConfig& latent = model.latent;
    const int64_t expanded = latent.plain_dim + latent.value_dim;
    of_gathered += cache.queries_per_head * (2 * expanded + model.rotary_dim);
    of_chunk = cache.queries_per_head *
               (cache.key_size + latent.kv_rank + model.head_dim + 2 * latent.value_dim);
    const kernels::DecodeOptions options =
        kernels::latent_decode_options(cache.queries_per_head, kMultiprocessors);
    records = kernels::decode_limits(drawn, options).records * cache.queries_per_head *
              latent.kv_rank * static_cast<int64_t>(sizeof(float));
  }
  const int64_t packed = element * (gathered * of_gathered + chunk * of_chunk) + records;
  int64_t sparse = 0;
  if (model.indexer.count > 0) {
    sparse =
        engine::GpuSparseAttention::workspace_bytes(model.indexer, {.rows = chunk + drawn,
                                                                    .longest = longest,
                                                                    .num_heads = model.num_heads,
                                                                    .row_size = cache.key_size});
    // What recorded steps hold is for any context; they share it.
    sparse += kernels::sparse_decode_bytes(
        {.num_rows = recorded_rows(sampled),
         .most_keys = config.sglang_context_length.value_or(model.max_positions),
         .count = model.indexer.count,
         .num_heads = cache.queries_per_head,
         .rank = model.latent.kv_rank},
        kMultiprocessors);
  }
  // Logits of a step that verifies come in blocks.
  const int64_t launched =
      std::max(drawn, std::min(drawn_rows(config, sampled), engine::kDrawnBlockRows));
  // Once launched kernel by kernel, once recorded.
  return (config.sglang_chunked_prefill_size + 2 * drawn) * row +
         (launched + drawn) * model.vocab_size * 4 +
         recorded_steps(sampled, drawn) * kRecordedStepBytes + packed + sparse +
         coded_expert_bytes(config, model, precision.activations);
}

/// Of a network like this one, whole or slices, whose matrices are in the form that the engine has them in.
int64_t stored_bytes(const config::RunConfig& config, model::Network& network,
                     model::Precision precision) {
  const model::Weights& weights = network.weights();
  if (!config.has_codes() || weights.has_formats()) return weights.num_bytes();
  precision.matrices = kernels::MatrixFormat::kFp8Blocks;
  precision.device = at::kMeta;
  const auto whole = model::make_blank_network(network.config(), precision);
  const int64_t all = whole->weights().num_parameters(), here = weights.num_parameters();
  if (here == all) return whole->weights().num_bytes();
  // As much of each kind of matrices as of the others.
  return static_cast<int64_t>(static_cast<double>(whole->weights().num_bytes()) *
                              static_cast<double>(here) / static_cast<double>(all));
}

/// Of an engine over ranks that train, which bring codes into its weights while it stands still: those lie in no
/// second buffer, but a rank whose slices are others makes codes of its own first.
bool gets_codes_brought(const config::RunConfig& config, model::Network& network,
                        model::Network& trained) {
  return config.takes_turns() && &network != &trained && network.weights().has_formats();
}

}  // namespace

MemoryNeeds memory_needs(const config::RunConfig& config, model::Network& network,
                         model::Network& trained, const model::Precision& precision,
                         const train::TrainConfig* trainer, const comm::ParallelLayout& layout,
                         bool has_engine, int64_t longest_prompt) {
  const model::ModelConfig& model = network.config();
  const int64_t weights = network.weights().num_bytes();
  MemoryNeeds needs;
  needs.has_engine = has_engine && config.num_engine_workers == 0;
  needs.longest_request = longest_request(config, model, longest_prompt);
  needs.micro_batch_tokens = micro_batch_tokens(config, needs.longest_request);
  if (trainer != nullptr && !precision.device.is_cpu() && config::shares_tensors(config))
    needs.functions = kPythonContextBytes;
  if (trainer != nullptr) {
    needs.train =
        memory_of(rank_of(trained, precision, *trainer, layout, needs.micro_batch_tokens));
    if (&trained != &network) needs.whole_weights = weights;
  } else {
    needs.train.weights = weights;
  }
  if (has_engine) {
    const auto draft = draft_model_of(config, model);
    set_pages(config, network, precision, draft, needs);
    if (model.latent.kv_rank > 0) needs.ranks_of_one_cache = config.ranks_of_own_engine();
    needs.step_requests = step_requests(config);
    if (needs.has_engine) {
      needs.engine_workspace = engine_workspace_bytes(config, network, draft.get(), precision,
                                                      most_sampled(config), needs.longest_request);
      if (!precision.device.is_cpu()) needs.engine_transient = kTimingBytes;
    } else {
      needs.published_weights = stored_bytes(config, network, precision);
    }
    const bool is_engines_alone = trainer == nullptr && config.has_codes();
    // Updates bring those alone, which are copied from where they are.
    const bool has_adapters = network.adapters() != nullptr;
    if (needs.has_engine && gets_codes_brought(config, network, trained)) {
      if (config.has_engine_on_each_rank() && !has_adapters)
        needs.staged_weights = stored_bytes(config, trained, precision);
    } else if (needs.has_engine && !config.shares_weights() && !is_engines_alone) {
      needs.engine_weights = stored_bytes(config, network, precision) +
                             (has_adapters ? network.trained().num_bytes() : 0);
      const bool is_staged =
          !has_adapters && (network.weights().flat().is_cuda() || config.has_codes() ||
                            network.weights().has_formats());
      needs.staged_weights = is_staged ? needs.engine_weights : 0;
    }
    if (setup::evaluates_beside(config)) {
      needs.eval_requests = setup::evaluation_requests(config);
      needs.eval_weights = stored_bytes(config, network, precision);
      needs.eval_workspace = engine_workspace_bytes(config, network, draft.get(), precision,
                                                    needs.eval_requests, needs.longest_request);
    }
  }
  return needs;
}

MemoryNeeds engine_memory_needs(const config::RunConfig& config, model::Network& network,
                                const model::Precision& precision, int64_t longest_prompt) {
  MemoryNeeds needs;
  needs.longest_request = longest_request(config, network.config(), longest_prompt);
  const auto draft = draft_model_of(config, network.config());
  set_pages(config, network, precision, draft, needs);
  needs.engine_workspace =
      engine_workspace_bytes(config, network, draft.get(), precision,
                             config.sglang_max_running_requests, needs.longest_request);
  if (network.config().latent.kv_rank > 0)
    needs.ranks_of_one_cache = config.rollout_num_gpus_per_engine;
  // Steps are recorded for each of its two networks.
  if (precision.device.is_cuda()) {
    const int64_t sampled = config.sglang_max_running_requests;
    needs.engine_workspace +=
        recorded_steps(sampled, drafted_rows(config, sampled)) * kRecordedStepBytes;
    needs.engine_transient = kTimingBytes;
  }
  // An adapter's second network has the numbers of the first.
  const int64_t updated = network.trained().num_bytes();
  needs.engine_weights =
      network.weights().num_bytes() + (network.adapters() != nullptr ? updated : 0);
  needs.staged_weights = updated;
  return needs;
}

}  // namespace slime::estimate
