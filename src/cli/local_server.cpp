#include "cli/local_server.h"

#include <fmt/format.h>

#include <chrono>
#include <random>

#include "cli/grammar_options.h"
#include "cli/open_tokenizer.h"
#include "cli/sampling_defaults.h"
#include "cluster/run_identity.h"
#include "core/calendar.h"
#include "core/error.h"
#include "engine/chat/chat_model.h"
#include "model/adapter_files.h"
#include "model/config.h"
#include "model/placement.h"

namespace slime::cli {
namespace {

std::shared_ptr<const engine::ChatModel> chat_model_of(const LocalServerOptions& options,
                                                       const text::Tokenizer& tokenizer) {
  try {
    return engine::load_chat_model({.directory = options.directory,
                                    .template_file = options.chat_template,
                                    .now = [] { return local_time(SystemClock().unix_seconds()); },
                                    .parsers = {}},
                                   tokenizer);
  } catch (const ConfigError& error) {
    if (!options.chat_template.empty()) throw;
    throw ConfigError(
        fmt::format("{}; a chat needs a template: --chat-template FILE gives one, `slime generate` "
                    "goes on with "
                    "a text without",
                    error.what()));
  }
}

}  // namespace

LocalServer::LocalServer(const LocalServerOptions& options) : key_(cluster::make_run_token()) {
  tokenizer_ = open_tokenizer(options.directory);
  const auto chat = chat_model_of(options, *tokenizer_);  // before the weights, which take time
  const model::ModelConfig config = model::read_model_config(options.directory);
  const std::string dtype = options.dtype == "auto" ? config.dtype : options.dtype;
  network_ =
      model::load_network(options.directory, model::precision_on(options.device.device, dtype));
  if (!options.adapter.empty()) model::load_adapters(*network_, options.adapter);
  engine::EngineConfig engine;
  engine.context_length = options.context_length;
  engine.kv_cache_bytes = kv_cache_bytes_of(options.device);
  engine.seed = std::random_device{}();
  engine.token_bytes = [this](TokenId id) { return tokenizer_->token_bytes(id); };
  engine.eos_token_ids = told_end_tokens(config, *tokenizer_);
  engine.constraints =
      make_constraints({}, tokenizer_.get(), config.vocab_size, engine.eos_token_ids, "slime chat");
  engine_ = std::make_unique<engine::Engine>(*network_, engine, clock_);
  served_ = {.name = options.name,
             .path = options.directory,
             .dtype = dtype,
             .model_type = config.model_type,
             .context_length = engine_->max_request_tokens(),
             .vocab_size = config.vocab_size,
             .sampling_defaults = sampling_defaults_by("model", options.directory),
             .tokenizer = tokenizer_.get(),
             .longest_token_bytes = engine::longest_token_bytes(*tokenizer_),
             .chat = chat};
  server_ = std::make_unique<engine::ApiServer>(
      *engine_, served_,
      net::HttpServerConfig{.port = 0, .access = {.api_key = key_}, .serves_own_user_only = true},
      engine::ApiOptions{.max_running_requests = engine.max_running_requests});
  server_->start();
}

LocalServer::~LocalServer() { server_->stop(std::chrono::milliseconds(0)); }

std::string LocalServer::description() const {
  return fmt::format("{}, {} tokens of context", served_.dtype, served_.context_length);
}

}  // namespace slime::cli
