// A byte that chooses, then the JSON body of /v1/responses, of /v1/messages or of count_tokens: a
// call or a ConfigError, nothing else. Or the arguments of a call, which become a JSON object at any
// split, or thoughts that a client sends back.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "core/error.h"
#include "engine/chat/chat_model.h"
#include "engine/http/anthropic/anthropic_request.h"
#include "engine/http/anthropic/tool_input.h"
#include "engine/http/request_body.h"
#include "engine/http/responses/reasoning_envelope.h"
#include "engine/http/responses/responses_request.h"
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

const ServedModel& tiny_model() {
  static const auto render = [](const json::array& messages, const json::object& options) {
    return json_text(messages) + json_text(options);
  };
  static const ServedModel model{
      .name = "tiny",
      .path = {},
      .dtype = "float32",
      .model_type = "llama",
      .architectures = {},
      .context_length = 4096,
      .vocab_size = 3,
      .sampling_defaults = {},
      .tokenizer = &tiny_tokenizer(),
      .longest_token_bytes = 2,
      .chat = std::make_shared<const ChatModel>(render, "", &tiny_tokenizer(),
                                                ChatParsers{"qwen25", "qwen3"}),
      .weight_roots = {},
  };
  return model;
}

void require(bool holds) {
  if (!holds) std::abort();
}

template <typename Parse>
void attempt(std::string_view body, Parse parse) {
  try {
    (void)parse(parse_body(body));
  } catch (const ConfigError&) {
  }
}

/// Whole and in pieces of `size`: the same JSON object goes out.
void split_arguments(std::string_view text, std::size_t size) {
  ToolInput whole, pieces;
  std::string all = whole.add(text);
  all += whole.finish();
  std::string some;
  for (std::size_t begin = 0; begin < text.size(); begin += size)
    some += pieces.add(text.substr(begin, size));
  some += pieces.finish();
  require(all == some);
  try {
    require(parse_json(all, "input").is_object());
  } catch (const ConfigError&) {  // deeper than JSON is read, or no UTF-8
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const ServedModel& model = tiny_model();
  switch (data[0]) {
    case 'r':
      attempt(rest, [&](const json::object& body) { return parse_responses_call(body, model); });
      break;
    case 'm':
      attempt(rest, [&](const json::object& body) { return parse_anthropic_call(body, model); });
      break;
    case 'c':
      attempt(rest, [&](const json::object& body) {
        return count_prompt_tokens(read_anthropic_request(body, model, true).chat, model);
      });
      break;
    case 'e':
      if (const auto text = unpack_reasoning(rest))
        require(unpack_reasoning(pack_reasoning(*text)) == text);
      break;
    default:
      split_arguments(rest, data[0] % 7 + 1);
  }
  return 0;
}
