#include "plugin/run_api.h"

#include <memory>
#include <utility>

#include "core/error.h"
#include "model/config.h"
#include "text/chat_template.h"

namespace slime::plugin {
namespace {

/// Empty for a model without a template: such a run has no /v1/chat/completions.
engine::RenderChatFn chat_of(const std::filesystem::path& directory,
                             std::chrono::local_days today) {
  std::shared_ptr<const text::ChatTemplate> chat;
  try {
    chat = std::make_shared<const text::ChatTemplate>(text::ChatTemplate::load(directory));
  } catch (const ConfigError&) {
    return {};
  }
  return [chat, today](const json::array& messages, const json::object& object) {
    auto options = text::to_chat_options(object);
    if (!options) throw ConfigError("chat_template_kwargs: " + options.error().message);
    options->now = today;
    auto rendered = chat->render(messages, *options);
    if (!rendered)
      throw ConfigError("messages: the chat template refused them: " + rendered.error().message);
    return std::move(*rendered);
  };
}

engine::ServedModel served_model(const config::RunConfig& config, const setup::ModelText& text) {
  const model::ModelConfig shape = model::read_model_config(config.hf_checkpoint);
  return {.name = std::filesystem::path(config.hf_checkpoint).filename().string(),
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
          .render_chat = chat_of(config.hf_checkpoint, text.today),
          .weight_roots = {}};
}

engine::ApiOptions options_of(const config::RunConfig& config) {
  engine::ApiOptions options;
  options.weight_version = "0";
  options.max_running_requests = config.sglang_max_running_requests;
  options.random_seed = static_cast<uint64_t>(config.seed);
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
