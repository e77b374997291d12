#pragma once

/// Description of the served model for the HTTP routes.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "engine/client.h"

namespace slime::text {
class Tokenizer;
}

namespace slime::engine {

class ChatModel;

class ServedAdapters;

struct ServedModel {
  std::string name;                           // in /v1/models
  std::filesystem::path path;                 // model directory
  std::filesystem::path tokenizer_path = {};  // empty: the model's
  std::string dtype;                          // "bfloat16"
  std::string model_type;                     // config.json's, "qwen3"
  std::vector<std::string> architectures;     // config.json's
  std::int64_t context_length = 0;            // prompt and response together, in tokens
  bool returns_routed_experts = false;        // EngineConfig::records_experts
  std::int64_t routed_layers = 0;             // rows of a token's routing: all layers of the model
  std::int64_t experts_per_token = 0;         // numbers of such a row; 0 without experts
  std::int64_t vocab_size = 0;                // ids a request may name
  SamplingParams sampling_defaults;           // where a request is silent
  std::int64_t stream_interval = 1;           // idem
  /// Outlives the server. Null: token ids in and out, no text.
  const text::Tokenizer* tokenizer = nullptr;
  /// Of the tokenizer (longest_token_bytes below): a longer text than this times the context cannot
  /// fit, and is refused before anybody tokenises it.
  std::size_t longest_token_bytes = 0;
  /// Null: the model has no chat template.
  std::shared_ptr<const ChatModel> chat = nullptr;
  /// Chat completions have thoughts under vLLM's name, too: `reasoning` next to `reasoning_content`.
  bool names_reasoning_twice = false;
  /// Weights and adapters that a request names are read below these only.
  std::vector<std::filesystem::path> weight_roots;
  /// That requests may name. Outlives the server. Null: there are none.
  ServedAdapters* adapters = nullptr;
};

std::size_t longest_token_bytes(const text::Tokenizer& tokenizer);

/// Throws ConfigError, which names what to send instead.
void require_tokenizer(const ServedModel& model);

/// Text to ids for a prompt. Throws ConfigError without a tokenizer, or, with the `field`'s name,
/// when the text is too long for the context whatever it says.
std::vector<TokenId> encode_prompt(const ServedModel& model, std::string_view field,
                                   std::string_view text, bool add_special_tokens);

/// The directory behind links and "..", if it lies below one of `weight_roots`, as all do that its own links lead to.
/// Throws ConfigError with the field's name.
std::filesystem::path confined_directory(const ServedModel& model, std::string_view field,
                                         const std::string& text);

/// Where update_weights_from_disk may read when nobody said: the folder that holds the model's (in
/// the hub's cache all of the model's revisions), or the model's own when that would be the whole file system.
std::filesystem::path default_weight_root(const std::filesystem::path& model_directory);

/// SGLang's --sampling-defaults model: temperature, top_p, top_k, min_p and repetition_penalty of
/// generation_config.json, where the file has them. Throws ConfigError when the file is malformed;
/// its absence is fine.
SamplingParams sampling_defaults_of(const std::filesystem::path& model_directory);

}  // namespace slime::engine
