#include "roles/run_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "config/eval_config.h"
#include "core/calendar.h"
#include "core/draft_words.h"
#include "core/error.h"
#include "engine/end_tokens.h"
#include "engine/grammar_constraints.h"
#include "kernels/cpu/processor.h"
#include "model/config.h"
#include "model/eagle3.h"
#include "model/pipeline_layers.h"
#include "model/placement.h"
#include "roles/code_slices.h"
#include "roles/engine_ranks.h"
#include "roles/rank_tasks.h"
#include "setup/cache_precision.h"

namespace slime::roles {

namespace {

/// Numbers of scripts that config.json has too: one row each, the same sentence for all.
void check_numbers(const config::RunConfig& config, const model::ModelConfig& model,
                   std::vector<std::string>& problems) {
  const auto same = [&](const char* flag, const auto& given, auto actual, bool has_any = true) {
    if (!given || (has_any && *given == actual)) return;
    const std::string says = has_any ? fmt::format("{}", actual) : "nothing of the kind";
    problems.push_back(
        fmt::format("{} {}: config.json of --hf-checkpoint says {}", flag, *given, says));
  };
  same("--num-layers", config.num_layers, model.num_layers);
  same("--hidden-size", config.hidden_size, model.hidden_size);
  same("--ffn-hidden-size", config.ffn_hidden_size, model.intermediate_size);
  same("--num-attention-heads", config.num_attention_heads, model.num_heads);
  same("--num-query-groups", config.num_query_groups, model.num_kv_heads);
  same("--vocab-size", config.vocab_size, model.vocab_size);
  same("--rotary-base", config.rotary_base, model.rope.theta);
  same("--norm-epsilon", config.norm_epsilon, model.norm_eps);

  const bool is_latent = model.latent.kv_rank > 0;
  if (!is_latent) {  // scripts of latent attention give these a meaning of their own, or none
    same("--kv-channels", config.kv_channels, model.head_dim);
    same("--rotary-percent", config.rotary_percent,
         static_cast<double>(model.rotary_dim) / static_cast<double>(model.head_dim));
  }
  same("--kv-lora-rank", config.kv_lora_rank, model.latent.kv_rank, is_latent);
  same("--q-lora-rank", config.q_lora_rank, model.latent.q_rank, model.latent.q_rank > 0);
  same("--qk-head-dim", config.qk_head_dim, model.latent.plain_dim, is_latent);
  same("--qk-pos-emb-head-dim", config.qk_pos_emb_head_dim, model.rotary_dim, is_latent);
  same("--v-head-dim", config.v_head_dim, model.latent.value_dim, is_latent);

  const model::ExpertsConfig& experts = model.experts;
  const bool has_experts = model.has_experts();
  same("--num-experts", config.num_experts, experts.count, has_experts);
  same("--moe-ffn-hidden-size", config.moe_ffn_hidden_size, experts.width, has_experts);
  same("--moe-router-topk", config.moe_router_topk, experts.per_token, has_experts);
  same("--moe-shared-expert-intermediate-size", config.moe_shared_expert_intermediate_size,
       experts.shared_width, experts.shared_width > 0);
  same("--moe-router-num-groups", config.moe_router_num_groups, experts.num_groups, has_experts);
  same("--moe-router-group-topk", config.moe_router_group_topk, experts.groups_per_token,
       has_experts);
  same("--moe-router-topk-scaling-factor", config.moe_router_topk_scaling_factor, experts.scaling,
       has_experts);
}

/// Whether ranks can divide the model's experts.
void check_experts(const config::RunConfig& config, const model::ModelConfig& model,
                   std::vector<std::string>& problems) {
  const int64_t ep = config.expert_model_parallel_size, etp = config.expert_tensor_size();
  if (!model.has_experts()) {
    if (ep > 1) {
      problems.push_back(
          fmt::format("--expert-model-parallel-size {}: the model has no experts", ep));
    }
    return;
  }
  if (model.experts.count % ep != 0) {
    problems.push_back(
        fmt::format("--expert-model-parallel-size {}: does not divide the {} experts of a layer",
                    ep, model.experts.count));
  }
  if (model.experts.width % etp != 0) {
    problems.push_back(
        fmt::format("--expert-tensor-parallel-size {}: does not divide the width {} of an expert",
                    etp, model.experts.width));
  }
  if (model.experts.are_in_turns && model.hidden_size % etp != 0) {
    problems.push_back(fmt::format(
        "--expert-tensor-parallel-size {}: does not divide the {} outputs of an expert, whose "
        "biases ranks share",
        etp, model.hidden_size));
  }
}

/// Where a GPU has no kernels in the trainer's order (docs/decisions/0168-training-arithmetic.md).
void check_on_policy_on_gpu(const model::ModelConfig& model, std::vector<std::string>& problems) {
  const auto refuse = [&](bool is_so, const std::string& why) {
    if (is_so)
      problems.push_back(fmt::format("--true-on-policy --device cuda: {}; use --device cpu", why));
  };
  const model::ExpertsConfig& experts = model.experts;
  refuse(
      model.has_experts() && !experts.has_one_choice(),
      "the model has experts with biases or in groups, and routers in the trainer's order choose "
      "among all experts by one product");
  const bool has_sizes = model.hidden_size % 8 == 0 && model.hidden_size <= 8192 &&
                         experts.count <= 512 && experts.per_token <= 32 && experts.width % 8 == 0;
  refuse(model.has_experts() && experts.has_one_choice() && !has_sizes,
         "the model has more than 512 experts of a layer or 32 of a token, or sizes above 8,192 or "
         "no multiple of eight, which routers and experts in the trainer's order have not");
  refuse(model.latent.kv_rank > 0,
         "the model has latent attention, which prompts and training compute in two forms");
  refuse(std::ranges::any_of(model.window, [](int64_t tokens) { return tokens > 0; }),
         "the model has sliding windows, which attention in the trainer's order has not");
  const bool has_heads = model.head_dim == 64 || model.head_dim == 128 || model.head_dim == 256;
  refuse(model.latent.kv_rank == 0 && !has_heads,
         fmt::format("the model has heads of {} numbers; attention in the trainer's order has 64, "
                     "128 and 256",
                     model.head_dim));
}

/// Where the trainer has no attention with the engine's bits (docs/exact.md).
void check_on_policy(const config::RunConfig& config, const model::ModelConfig& model,
                     std::vector<std::string>& problems) {
  const auto refuse = [&](bool is_so, const char* why) {
    if (is_so) problems.push_back(fmt::format("--true-on-policy: {}; leave it out", why));
  };
  refuse(!model.indexer.in_layer.empty(),
         "the model has sparse attention, whose choice of tokens the trainer makes of scores that "
         "it adds in another order");
  refuse(!model.delta.in_layer.empty(),
         "the model has gated delta nets, whose prompts go by chunks and decode by tokens");
  if (config.is_on_gpus()) return check_on_policy_on_gpu(model, problems);
  refuse(!kernels::cpu::has_avx2(),
         "this processor has no AVX2, without which the engine's attention is not the trainer's");
}

/// Choices of tokens do not travel between pipeline stages.
void check_choices(const config::RunConfig& config, const model::ModelConfig& model,
                   std::vector<std::string>& problems) {
  const std::vector<bool>& makes_choice = model.indexer.in_layer;
  if (config.pipeline_model_parallel_size == 1 || makes_choice.empty()) return;
  const comm::ParallelLayout layout = layout_of(config);
  try {
    for (int stage = 0; stage < layout.pp; ++stage) {
      for (const model::LayerRange& range :
           model::layers_of_stage(layout, stage, model.num_layers)) {
        if (makes_choice[static_cast<std::size_t>(range.begin)]) continue;
        problems.push_back(fmt::format(
            "--pipeline-model-parallel-size {}: layer {} would begin a stage, and takes the tokens "
            "that the indexer of a layer before it chose; --decoder-first-pipeline-num-layers and "
            "--decoder-last-pipeline-num-layers move the cuts",
            layout.pp, range.begin));
      }
    }
  } catch (const ConfigError& error) {  // they do not divide: for all stages alike
    problems.emplace_back(error.what());
  }
}

void check_draft_layer(const config::RunConfig& config, const model::ModelConfig& model,
                       std::vector<std::string>& problems) {
  if (trained_draft_layers(config) == model::DraftLayers::kCarried) return;
  if (const std::string why = model::why_no_draft_layers(model); !why.empty())
    problems.push_back("--enable-mtp-training: " + why + "; leave it out");
  if (model.drafts.count > 1)
    problems.push_back(
        fmt::format("--enable-mtp-training: one layer is trained, and config.json tells of {}",
                    model.drafts.count));
}

/// Of the run's draft model, by its config.json and the headers of its weights. Where a dry run does not find the
/// directory, it is one of another machine.
void check_draft_model(const config::RunConfig& config, const model::ModelConfig& model,
                       std::vector<std::string>& problems) {
  if (!config.generates() || !config.names_draft_model() || !model.delta.in_layer.empty()) return;
  const std::filesystem::path directory = config.rollout_draft_model.peek();
  if (directory.empty()) return;  // the flags' own problem
  std::error_code error;          // links that lead nowhere
  if (config.dry_run && !std::filesystem::exists(directory, error)) return;
  for (std::string& problem : model::eagle3_problems(directory, model, config::kDraftModelFlag))
    problems.push_back(std::move(problem));
}

}  // namespace

void check_shape(const config::RunConfig& config, const model::ModelConfig& model) {
  std::vector<std::string> problems;
  check_numbers(config, model, problems);
  const int64_t longest =
      config.rollout_max_prompt_len.value_or(0) + config.rollout_max_response_len.value_or(0);
  if (model.max_positions > 0 && longest > model.max_positions) {
    problems.push_back(fmt::format(
        "--rollout-max-prompt-len + --rollout-max-response-len = {}: the model has {} positions",
        longest, model.max_positions));
  }
  const auto divides = [&](const char* what, int64_t count) {
    if (count % config.tensor_model_parallel_size != 0) {
      problems.push_back(
          fmt::format("--tensor-model-parallel-size {}: does not divide the model's {} {}",
                      config.tensor_model_parallel_size, count, what));
    }
  };
  divides("attention heads", model.num_heads);
  divides("key-value heads", model.num_kv_heads);
  if (!model.delta.in_layer.empty())
    divides("key heads of gated delta nets", model.delta.shape.key_heads);
  if (config.use_score_centering && config.rollout_top_p == 1 &&
      config.score_centering_top_k > model.vocab_size) {
    problems.push_back(fmt::format("--score-centering-top-k {}: the model has {} ids",
                                   config.score_centering_top_k.peek(), model.vocab_size));
  }
  if (config.true_on_policy) check_on_policy(config, model, problems);
  check_experts(config, model, problems);
  check_draft_layer(config, model, problems);
  check_draft_model(config, model, problems);
  check_code_slices(config, model, problems);
  check_choices(config, model, problems);
  if (!model.has_experts()) {
    const auto needs_experts = [&](const char* flag, bool given) {
      if (given) problems.push_back(fmt::format("{}: the model has no experts", flag));
    };
    needs_experts("--use-routing-replay", config.use_routing_replay);
    needs_experts("--use-rollout-routing-replay", config.use_rollout_routing_replay);
  }
  if (config.moe_router_enable_expert_bias && !model.experts.has_selection_bias &&
      config.moe_router_bias_update_rate.value_or(0) != 0) {
    problems.emplace_back("--moe-router-bias-update-rate: the model's routers have no biases");
  }
  if (!problems.empty()) throw ConfigError(problems);
  if (config.num_engine_workers > 0 || config.has_engine_on_each_rank())
    check_engine_ranks(model, config.rollout_num_gpus_per_engine, "--rollout-num-gpus-per-engine");
}

namespace {

int64_t rollouts_of_epochs(const config::RunConfig& config, int64_t num_rows) {
  const int64_t rows = *config.num_epoch * num_rows;
  return (rows + config.rollout_batch_size - 1) / config.rollout_batch_size;
}

}  // namespace

int64_t planned_rollouts(const config::RunConfig& config,
                         const std::optional<buffer::Dataset>& prompts) {
  if (config.num_rollout) return *config.num_rollout;
  check(prompts.has_value(), "a run measured in epochs has a data set");
  return rollouts_of_epochs(config, prompts->size());
}

std::vector<std::string> epoch_notes(const config::RunConfig& config, int64_t num_rows) {
  if (config.num_rollout || num_rows == 0) return {};
  const int64_t planned = rollouts_of_epochs(config, num_rows);
  const int64_t missing = planned * config.rollout_batch_size - *config.num_epoch * num_rows;
  if (missing == 0) return {};
  // A batch of more rows than the data has takes them several times.
  const int64_t more_epochs = (missing + num_rows - 1) / num_rows;
  return {fmt::format(
      "--num-epoch {}: {} rows an epoch are {} rollout steps of {}; batches go on over the ends "
      "of epochs, and the last one is filled with {} rows of {}",
      *config.num_epoch, num_rows, planned, config.rollout_batch_size, missing,
      more_epochs == 1
          ? "one more epoch"
          : fmt::format("{} more epochs, so rows are trained more often than asked", more_epochs))};
}

std::unique_ptr<buffer::Ledger> open_ledger(const std::filesystem::path& path,
                                            const std::optional<train::Checkpoint>& checkpoint) {
  if (!std::filesystem::exists(path))
    return std::make_unique<buffer::Ledger>(buffer::Ledger::create(path));
  const int64_t position = checkpoint ? checkpoint->run.at("ledger").to_number<int64_t>() : 0;
  return std::make_unique<buffer::Ledger>(buffer::Ledger::open_at(path, position));
}

std::chrono::local_days first_day(const std::optional<train::Checkpoint>& checkpoint,
                                  const Clock& clock) {
  const json::value* started = checkpoint ? checkpoint->run.if_contains("started") : nullptr;
  if (started != nullptr && started->is_string()) {
    if (const auto date = parse_date_text(std::string_view(started->get_string()))) return *date;
  }
  return std::chrono::floor<std::chrono::days>(local_time(clock.unix_seconds()));
}

engine::EngineConfig engine_settings(const config::RunConfig& config) {
  engine::EngineConfig engine;
  engine.max_running_requests = config.sglang_max_running_requests;
  engine.max_prefill_tokens = config.sglang_chunked_prefill_size;
  engine.kv_cache_dtype =
      setup::kv_cache_dtype(config, model::Precision::of(config.dtype).activations);
  engine.context_length = config.sglang_context_length.value_or(0);
  engine.enable_prefix_cache = !config.sglang_disable_radix_cache;
  engine.records_experts = config.use_rollout_routing_replay;
  engine.verify_tokens = config.verify_tokens();
  engine.seed = static_cast<uint64_t>(config.seed);
  return engine;
}

engine::DraftSettings draft_settings(const config::RunConfig& config,
                                     const model::ModelConfig& model) {
  if (!model.delta.in_layer.empty()) return {};
  const bool has_layer = config.names_draft_layer() && model::why_no_draft_layers(model).empty();
  if (config.names_draft_layer() && !has_layer && !config.names_texts()) return {};
  if (!config.has_drafts()) return {};
  engine::DraftSettings settings{.most = config.rollout_draft_tokens.value_or(kUsualDrafts),
                                 .always = config.rollout_draft_always,
                                 .texts = config.names_texts(),
                                 .layer = has_layer};
  if (settings.texts) settings.text_bytes = config.rollout_draft_text_mb << 20;
  settings.model = config.names_draft_model() && !config.rollout_draft_model.get().empty();
  return settings;
}

model::DraftLayers trained_draft_layers(const config::RunConfig& config) {
  const bool trains = config.enable_mtp_training && !config.debug_rollout_only;
  return trains ? model::DraftLayers::kComputed : model::DraftLayers::kCarried;
}

model::DraftLayers engine_draft_layers(const config::RunConfig& config) {
  if (trained_draft_layers(config) == model::DraftLayers::kComputed)
    return model::DraftLayers::kComputed;
  const bool computes =
      config.names_draft_layer() &&
      draft_settings(config, model::read_model_config(config.hf_checkpoint)).layer;
  return computes ? model::DraftLayers::kComputed : model::DraftLayers::kCarried;
}

engine::GrammarConfig grammar_config(const config::RunConfig& config) {
  return {.takes_grammars = config.sglang_grammar_backend != "none",
          .disables_whitespace = config.sglang_constrained_json_disable_any_whitespace};
}

engine::EngineConfig make_engine_config(const config::RunConfig& config,
                                        const setup::ModelText& text, int64_t kv_cache_bytes) {
  engine::EngineConfig engine = engine_settings(config);
  engine.kv_cache_bytes = kv_cache_bytes;
  engine.token_bytes = [tokenizer = text.tokenizer.get()](TokenId id) {
    return tokenizer->token_bytes(id);
  };
  const model::ModelConfig model = model::read_model_config(config.hf_checkpoint);
  engine.drafts = draft_settings(config, model);
  if (engine.drafts.model)
    engine.draft_model = model::load_eagle3(config.rollout_draft_model.get(), model,
                                            model::precision_on(config.device, config.dtype),
                                            config::kDraftModelFlag);
  engine.eos_token_ids = engine::end_tokens(model, text.tokenizer.get()).ids;
  engine.constraints = engine::make_grammar_constraints(
      text.tokenizer.get(), model.vocab_size, engine.eos_token_ids, grammar_config(config));
  return engine;
}

std::vector<std::string> missing_fields(const buffer::Dataset& rows,
                                        const config::RunConfig& config,
                                        const config::ParsedFlags& flags,
                                        const std::string& whose) {
  std::vector<std::string> notes;
  const auto note = [&](const char* flag, const std::string& name, bool is_there) {
    if (is_there || name.empty() || !flags.gives(flag)) return;
    notes.push_back(fmt::format("{} {}: no row of {} has such a field (of the first: {})", flag,
                                name, whose, rows.first_fields()));
  };
  if (!rows.schema().empty())
    notes.push_back(fmt::format("rows of {} are read as {}", whose, rows.schema()));
  note("--tool-key", config.tool_key, rows.has_tools());
  note("--metadata-key", config.metadata_key, rows.has_metadata());
  return notes;
}

std::vector<std::string> missing_fields(const buffer::Dataset& rows,
                                        const config::RunConfig& config,
                                        const config::EvalSetConfig& set) {
  std::vector<std::string> notes;
  const auto note = [&](const char* what, const std::string& name, const std::string& of_training,
                        bool is_there) {
    if (is_there || name.empty() || name == of_training) return;
    notes.push_back(fmt::format("evaluation {}: {} {}: no row has such a field (of the first: {})",
                                set.name, what, name, rows.first_fields()));
  };
  if (!rows.schema().empty())
    notes.push_back(fmt::format("rows of evaluation {} are read as {}", set.name, rows.schema()));
  note("--eval-tool-key", set.tool_key, config.tool_key, rows.has_tools());
  note("metadata_key", set.metadata_key, config.metadata_key, rows.has_metadata());
  return notes;
}

std::vector<std::string> end_token_notes(const config::RunConfig& config,
                                         const setup::ModelText& text) {
  if (!config.generates()) return {};
  return engine::end_tokens(model::read_model_config(config.hf_checkpoint), text.tokenizer.get())
      .notes;
}

bool needs_template(const config::RunConfig& config, bool evaluates) {
  if (config.apply_chat_template || config.trains_on_rows()) return true;
  return evaluates && std::ranges::any_of(config::eval_sets_of(config),
                                          &config::EvalSetConfig::apply_chat_template);
}

}  // namespace slime::roles
