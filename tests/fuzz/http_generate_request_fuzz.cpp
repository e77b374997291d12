// Bytes as the JSON body of /generate, /inference/v1/generate, /v1/chat/completions and
// /v1/completions: a call or a ConfigError, nothing else.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/error.h"
#include "engine/chat/chat_model.h"
#include "engine/http/chat_completions_request.h"
#include "engine/http/completions_request.h"
#include "engine/http/generate_request.h"
#include "engine/http/request_body.h"
#include "engine/http/token_route_request.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using namespace slime;
using namespace slime::engine;

const text::Tokenizer& tiny_tokenizer() {
  static const auto tokenizer = text::Tokenizer::from_json(
      R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,
          "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})",
      "");
  return *tokenizer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ServedModel model{
      .name = "tiny",
      .path = {},
      .dtype = "float32",
      .model_type = "llama",
      .architectures = {},
      .context_length = 64,
      .vocab_size = 3,
      .sampling_defaults = {},
      .tokenizer = &tiny_tokenizer(),
      .longest_token_bytes = 2,
      .chat = std::make_shared<const ChatModel>(
          [](const json::array& messages, const json::object&) {
            return json::serialize(messages);
          },
          "", &tiny_tokenizer(), ChatParsers{}),
      .weight_roots = {},
  };
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto attempt = [&](auto&& parse) {
    try {
      (void)parse(parse_body(body), model);
    } catch (const ConfigError&) {
    }
  };
  attempt(parse_generate_call);
  attempt(parse_token_route_call);
  attempt(parse_chat_completions);
  attempt(parse_completions);
  return 0;
}
