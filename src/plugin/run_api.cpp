#include "plugin/run_api.h"

#include <memory>
#include <utility>

#include "core/error.h"
#include "core/model_title.h"
#include "engine/chat/chat_model.h"
#include "model/config.h"

namespace slime::plugin {
namespace {

/// Null for a model without a template: such a run has no chat routes.
std::shared_ptr<const engine::ChatModel> chat_of(const std::filesystem::path& directory,
                                                 const setup::ModelText& text) {
  try {
    return engine::load_chat_model({.directory = directory,
                                    .template_file = {},
                                    .now = [today = text.today] { return today; },
                                    .parsers = {}},
                                   *text.tokenizer);
  } catch (const ConfigError&) {
    return nullptr;
  }
}

engine::ServedModel served_model(const config::RunConfig& config, const setup::ModelText& text) {
  const model::ModelConfig shape = model::read_model_config(config.hf_checkpoint);
  return {.name = model_title(config.hf_checkpoint.get()),
          .path = config.hf_checkpoint,
          .dtype = config.dtype,
          .model_type = shape.model_type,
          .architectures = {},
          .context_length = 0,
          .returns_routed_experts = config.use_rollout_routing_replay,
          .routed_layers = shape.num_layers,
          .experts_per_token = shape.experts.per_token,
          .vocab_size = shape.vocab_size,
          .sampling_defaults = engine::sampling_defaults_of(config.hf_checkpoint),
          .tokenizer = text.tokenizer.get(),
          .longest_token_bytes = engine::longest_token_bytes(*text.tokenizer),
          .chat = chat_of(config.hf_checkpoint, text),
          .weight_roots = {}};
}

engine::ApiOptions options_of(const config::RunConfig& config) {
  engine::ApiOptions options;
  options.weight_version = "0";
  options.max_running_requests = config.sglang_max_running_requests;
  options.random_seed = static_cast<uint64_t>(config.seed);
  options.sessions.idle_time = std::chrono::hours(24);  // tools of agents may take long
  return options;
}

}  // namespace

RunApi::RunApi(const config::RunConfig& config, const setup::ModelText& text)
    : model_(served_model(config, text)),
      server_(engine_, model_, {.port = 0, .serves_own_user_only = true}, options_of(config)) {}

void RunApi::open(engine::EngineClient& engine, int64_t max_request_tokens) {
  engine_.open(engine);
  model_.context_length = max_request_tokens;
  server_.start();
}

}  // namespace slime::plugin
