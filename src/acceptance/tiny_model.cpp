#include "acceptance/tiny_model.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "model/network.h"
#include "model/save.h"
#include "text/tokenizer/byte_tokenizer.h"

namespace slime::acceptance {
namespace {

namespace fs = std::filesystem;

/// The marks of ChatML, and the names of the speakers as one token each.
constexpr auto kAdded = std::to_array<std::string_view>(
    {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "system", "user", "assistant"});
constexpr std::size_t kMarks = 3;
constexpr int kEndOfText = 256, kEndOfMessage = 258;
constexpr int kPositions = 512;

constexpr std::string_view kChatTemplate =
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + "
    "'<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' "
    "}}{%- endif %}";

}  // namespace

json::object tiny_config(const TinyShape& shape) {
  return {{"architectures", json::array{"Qwen3ForCausalLM"}},
          {"model_type", "qwen3"},
          {"vocab_size", static_cast<int64_t>(256 + kAdded.size())},
          {"hidden_size", shape.hidden},
          {"intermediate_size", 3 * shape.hidden},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", shape.heads},
          {"num_key_value_heads", shape.kv_heads},
          {"head_dim", shape.head_dim},
          {"max_position_embeddings", kPositions},
          {"rope_theta", 10000.0},
          {"rms_norm_eps", 1e-6},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"tie_word_embeddings", true},
          {"initializer_range", 0.02},
          {"eos_token_id", kEndOfMessage},
          {"pad_token_id", kEndOfText},
          {"torch_dtype", "float32"}};
}

void write_tiny_model(const fs::path& directory, const TinyShape& shape) {
  fs::create_directories(directory);
  const auto network = model::make_network(model::parse_model_config(tiny_config(shape), "config"),
                                           model::Precision::of("float32"), /*seed=*/1);
  model::save_network(*network, directory);
  model::write_file(directory / "tokenizer.json",
                    json_text(text::byte_tokenizer(kAdded, kMarks)) + "\n");
  model::write_file(directory / "tokenizer_config.json",
                    json_text(json::object{{"eos_token", "<|im_end|>"},
                                           {"pad_token", "<|endoftext|>"},
                                           {"tokenizer_class", "PreTrainedTokenizerFast"},
                                           {"model_max_length", kPositions},
                                           {"chat_template", kChatTemplate}}) +
                        "\n");
}

void write_tiny_rows(const fs::path& file, int64_t count) {
  std::string lines;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t a = 10 + i * 7 % 80, b = 11 + i * 13 % 70;
    const std::string question = fmt::format("{} + {} =", a, b), answer = std::to_string(a + b);
    const json::object user{{"role", "user"}, {"content", question}};
    const json::object assistant{{"role", "assistant"}, {"content", answer}};
    lines += json_text(json::object{{"prompt", json::array{user}},
                                    {"label", answer},
                                    {"messages", json::array{user, assistant}}}) +
             "\n";
  }
  model::write_file(file, lines);
}

}  // namespace slime::acceptance
