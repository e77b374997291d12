#pragma once

/// What the HTTP side knows about the model behind the engine.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/expected.h"
#include "core/json.h"
#include "engine/client.h"

namespace slime::text {
class Tokenizer;
}

namespace slime::engine {

/// What a chat template gets: `options` holds tools, add_generation_prompt, continue_final_message
/// and the members of chat_template_kwargs (enable_thinking, ...).
using RenderChatFn =
    std::function<std::string(const json::array& messages, const json::object& options)>;

/// Loads other weights into the running engine; blocks until they are in place.
using UpdateWeightsFn = std::function<Expected<void>(const std::filesystem::path& model_directory)>;

struct ServedModel {
  std::string name;                        // in /v1/models
  std::filesystem::path path;              // model directory
  std::string dtype;                       // "bfloat16"
  std::string model_type;                  // config.json's, "qwen3"
  std::vector<std::string> architectures;  // config.json's
  std::int64_t context_length = 0;         // prompt and response together, in tokens
  std::int64_t vocab_size = 0;             // ids a request may name
  SamplingParams sampling_defaults;        // where a request is silent
  const text::Tokenizer& tokenizer;        // outlives the server
  RenderChatFn render_chat;                // empty: the model has no chat template
  UpdateWeightsFn update_weights;
  std::vector<std::filesystem::path>
      weight_roots;  // update_weights_from_disk reads below these only
};

/// SGLang's --sampling-defaults model: temperature, top_p, top_k, min_p and repetition_penalty of
/// generation_config.json, where the file has them. Throws ConfigError when the file is malformed;
/// its absence is fine.
SamplingParams sampling_defaults_of(const std::filesystem::path& model_directory);

}  // namespace slime::engine
