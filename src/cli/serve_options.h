#pragma once

/// Options of `slime serve`. Names are SGLang's where it has the setting; what it has and this server does
/// not need: cli/sglang_flags.h.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/device.h"
#include "cli/draft_options.h"
#include "cli/grammar_options.h"
#include "engine/chat/chat_model.h"
#include "engine/engine_config.h"
#include "engine/http/api_state.h"
#include "net/http_server.h"

namespace slime::cli {

/// Values of the command line.
struct ServeOptions {
  std::string model;
  std::string tokenizer;  // a directory; empty: the model's
  std::string dtype = "auto";
  std::string served_model_name;
  std::string api_key_file;
  std::string admin_api_key_file;
  std::string sampling_defaults = "model";
  std::string chat_template;  // a file; empty: the model's own
  engine::ChatParsers parsers;
  GrammarOptions grammar;
  bool names_reasoning_twice = false;
  std::optional<uint64_t> random_seed;
  std::vector<std::string> weight_roots;
  DeviceOptions device;
  std::string adapter;                  // directory of one that all requests take
  std::vector<std::string> lora_paths;  // "NAME=DIR", or DIR
  bool enable_lora = false;
  int64_t max_loaded_loras = 64;
  DraftOptions drafts;
  int tp_size = 1;
  bool nccl_alone = false;
  bool disable_radix_cache = false;
  bool skip_tokenizer_init = false;
  int64_t response_limit_mib = 1 << 10;
  int64_t all_responses_limit_mib = 4 << 10;
  int64_t watchdog_timeout_s = 300;
  int64_t session_memory_mib = 4 << 10;
  int64_t session_idle_s = 3600;
  int64_t max_total_tokens = 0;  // of keys and values; 0: what --kv-cache-gib affords
  int64_t stream_interval = 1;   // tokens of a frame, where a request does not say
  engine::EngineConfig engine;
  engine::ApiOptions api;
  net::HttpServerConfig http;
};

void add_serve_options(CLI::App& app, ServeOptions& options);

}  // namespace slime::cli
