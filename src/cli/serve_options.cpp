#include "cli/serve_options.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <utility>

#include "cli/options.h"
#include "cli/sampling_defaults.h"
#include "cli/sglang_flags.h"

namespace slime::cli {
namespace {

/// SGLang's words for ours; others stay what they are.
CLI::Validator renamed(std::map<std::string, std::string> words) {
  return {[words = std::move(words)](std::string& word) -> std::string {
            if (const auto found = words.find(word); found != words.end()) word = found->second;
            return {};
          },
          "WORD"};
}

void add_key(CLI::App& app, const char* flag, std::string& key) {
  app.add_option_function<std::string>(
      flag,
      [flag, &app, &key](const std::string& word) {
        fmt::print(stderr,
                   "{}: {}: other users of this machine can read a command line; {}-file keeps "
                   "the key from them\n",
                   app.get_name(), flag, flag);
        key = word;
      },
      "the key itself, for scripts that have it; better: the flag with a file");
}

}  // namespace

void add_serve_options(CLI::App& app, ServeOptions& options) {
  app.add_option(
         "MODEL,--model,--model-path", options.model,
         "model directory (config.json, *.safetensors, tokenizer.json), or a model's name on "
         "Hugging Face's hub: Qwen/Qwen3-0.6B")
      ->required();
  app.add_option("--tokenizer-path", options.tokenizer,
                 "directory of the tokenizer and the chat template, or a model's name on the hub; "
                 "default: the model's");
  app.add_option("--host", options.http.host,
                 "address to listen on; other than loopback needs a key")
      ->capture_default_str();
  app.add_option("--port", options.http.port, "port; 0 picks a free one")->capture_default_str();
  app.add_option("--dtype", options.dtype,
                 "auto (as stored), float32 (float), bfloat16 or float16 (half)")
      ->transform(renamed({{"float", "float32"}, {"half", "float16"}}));
  app.add_option("--served-model-name", options.served_model_name,
                 "name in /v1/models; default: the directory's");
  app.add_option("--api-key-file", options.api_key_file,
                 "file with the key that clients send as a bearer token (or set SLIME_API_KEY)");
  app.add_option(
      "--admin-api-key-file", options.admin_api_key_file,
      "file with a key of its own for routes that change the server (or set SLIME_ADMIN_API_KEY); "
      "where there is an API key the weights can be changed with this one alone");
  add_key(app, "--api-key", options.http.access.api_key);
  add_key(app, "--admin-api-key", options.http.access.admin_api_key);
  app.add_option("--context-length", options.engine.context_length,
                 "tokens of prompt and response; default: the model's")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--max-running-requests", options.engine.max_running_requests,
                 "requests decoded together")
      ->check(CLI::Range(1, 65536));
  app.add_option("--max-queued-requests", options.engine.max_queued_requests,
                 "requests that may wait")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--chunked-prefill-size", options.engine.max_prefill_tokens,
                 "prompt tokens computed per step; -1: prompts are not cut")
      ->check(CLI::Range(-1, 1 << 20));
  app.add_option("--mixed-prefill-size", options.engine.prefill_beside_decode,
                 "the same in steps in which responses are generated, whose next tokens wait for "
                 "them; default: no other number")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--max-total-tokens", options.max_total_tokens,
                 "tokens for which there are keys and values; default: as --kv-cache-gib affords")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--kv-cache-dtype", options.engine.kv_cache_dtype,
                 "auto, bfloat16, float32 or (GPU) fp8_e4m3, which has no scales")
      ->transform(renamed({{"bf16", "bfloat16"}}));
  app.add_option("--adapter", options.adapter,
                 "PEFT directory of an adapter that all requests take");
  app.add_option("--lora-paths,--lora-modules", options.lora_paths,
                 "NAME=DIR ...: adapters that requests may name, as lora_path or as the model");
  app.add_flag("--enable-lora", options.enable_lora,
               "let adapters be loaded while the server runs (POST /load_lora_adapter)");
  app.add_option("--max-loaded-loras,--max-cpu-loras", options.max_loaded_loras,
                 "adapters in memory; one that was used longest ago goes for another")
      ->check(CLI::Range(1, 4096));
  add_device_options(app, options.device);
  app.add_option("--tp-size,--tensor-parallel-size,--tp", options.tp_size,
                 "processes that share the model, each with slices of its layers and their part of "
                 "keys and values; on GPUs one each")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--disable-custom-all-reduce", options.nccl_alone,
               "several GPUs: small sums go through NCCL, as large ones do");
  app.add_flag("--disable-radix-cache", options.disable_radix_cache,
               "do not reuse the prefixes of earlier prompts");
  app.add_flag("--enable-return-routed-experts", options.engine.records_experts,
               "record which experts tokens visit, for requests with return_routed_experts");
  app.add_option("--random-seed", options.random_seed,
                 "seed of requests without one; default: random");
  add_draft_options(app, options.drafts);
  add_sampling_defaults(app, options.sampling_defaults);
  app.add_option("--chat-template", options.chat_template,
                 "file with a chat template to use in place of the model's")
      ->check(CLI::ExistingFile);
  app.add_option(
      "--tool-call-parser", options.parsers.tool_calls,
      "form of tool calls in the model's output, by SGLang's or vLLM's name; auto: that of "
      "the chat template; none: calls are content");
  app.add_option(
      "--reasoning-parser", options.parsers.reasoning,
      "form of thoughts in the model's output, by SGLang's or vLLM's name; auto: that of "
      "the chat template; none: thoughts are content");
  add_grammar_options(app, options.grammar);
  app.add_flag("--also-name-reasoning", options.names_reasoning_twice,
               "chat completions have thoughts as `reasoning`, vLLM's name, next to "
               "`reasoning_content`");
  app.add_flag("--incremental-streaming-output", options.api.incremental_streaming_output,
               "frames of a /generate stream hold only what is new");
  app.add_option("--stream-interval", options.stream_interval,
                 "tokens of a stream's frame, where a request does not say")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--weight-version", options.api.weight_version, "name of the loaded weights");
  app.add_option("--watchdog-timeout", options.watchdog_timeout_s,
                 "seconds without a step until /health answers 503")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option(
      "--weights-root", options.weight_roots,
      "directory below which /update_weights_from_disk may read, besides the folder that holds the "
      "model's");
  app.add_option("--profile-dir", options.api.profile_directory,
                 "directory for the traces of /start_profile, which is refused without one")
      ->check(CLI::ExistingDirectory);
  app.add_flag("--skip-tokenizer-init", options.skip_tokenizer_init,
               "token ids in and out only; also where the model has no tokenizer");
  app.add_option("--response-limit-mib", options.response_limit_mib,
                 "memory that one call's answer may take; beyond it the call ends with 400")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--all-responses-limit-mib", options.all_responses_limit_mib,
                 "memory that all answers in the making may take; beyond it a call ends with 429")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--max-sessions", options.api.sessions.max_sessions, "open sessions of agents")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--session-memory-mib", options.session_memory_mib,
                 "memory that the turns of all sessions may take; beyond it chats in sessions are "
                 "refused with 429")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--session-idle-seconds", options.session_idle_s,
                 "a session without a request for so long may be dropped")
      ->check(CLI::Range(1, 1 << 30));
  app.add_flag("--require-sessions", options.api.requires_sessions,
               "chats that belong to no open session are refused with 401");
  options.http.access.has_host_flag = true;
  app.add_option("--allowed-host", options.http.access.allowed_hosts,
                 "further name in Host and Origin of requests");
  app.add_option("--max-connections", options.http.max_connections, "open connections")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--http-threads", options.http.num_threads,
                 "threads that parse, tokenise and write")
      ->check(CLI::Range(1, 1024));
  add_idle_sglang_flags(app);
}

}  // namespace slime::cli
