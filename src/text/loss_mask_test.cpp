#include "text/loss_mask.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>

#include "core/golden_test.h"
#include "core/json.h"
#include "text/chat_template.h"
#include "text/unicode/python_text.h"

namespace slime::text {
namespace {

// The toy templates of tests/golden/README.md.
constexpr std::string_view kDefaultSystem =
    "{% set tail = '\\nT:' + (tools | tojson) if tools else '' %}"
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = "
    "messages[1:] if tools else messages %}"
    "{% else %}{% set system = 'SYS' %}{% set rest = messages %}{% endif %}"
    "{% if tools or messages[0].role != 'system' %}{{ '<|im_start|>system\\n' + system + tail + "
    "'<|im_end|>\\n' }}{% endif %}"
    "{% for m in rest %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr std::string_view kPlain =
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if loop.first or loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}{{ "
    "'\\n[tool]' + m.content }}"
    "{% if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}"
    "{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr std::string_view kThink =
    "{% set ns = namespace(last_user=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last_user = loop.index0 %}{% endif "
    "%}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if loop.first or loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}{{ "
    "'\\n[tool]' + m.content }}"
    "{% if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}"
    "{% elif m.role == 'assistant' %}"
    "{% set parts = m.content.split('</think>') %}"
    "{% set thought = parts[0].split('<think>')[-1].strip('\\n') if parts | length > 1 else '' %}"
    "{% set answer = parts[-1].lstrip('\\n') %}"
    "{{ '<|im_start|>assistant\\n' }}"
    "{% if loop.index0 > ns.last_user %}{{ '<think>\\n' + thought + '\\n</think>\\n\\n' }}{% endif "
    "%}{{ answer + '<|im_end|>\\n' }}"
    "{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}";
constexpr std::string_view kDistill =
    "{% for m in messages %}{{ ('<|User|>' if m.role == 'user' else '<|Assistant|>') + m.content "
    "}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|Assistant|>' }}{% endif %}";

constexpr std::array<std::string_view, 6> kAdded = {"<|im_start|>", "<|im_end|>", "<think>",
                                                    "</think>",     "<|User|>",   "<|Assistant|>"};

/// One token per character, six added tokens.
std::vector<TokenId> toy_encode(std::string_view text) {
  std::vector<TokenId> ids;
  while (!text.empty()) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < kAdded.size() && length == 0; ++i) {
      if (!text.starts_with(kAdded[i])) continue;
      ids.push_back(static_cast<TokenId>(i + 1));
      length = kAdded[i].size();
    }
    if (length == 0) ids.push_back(static_cast<TokenId>(python::next_point(text, length)));
    text.remove_prefix(length);
  }
  return ids;
}

ChatCodec toy_codec(std::string_view source) {
  const auto chat =
      std::make_shared<const ChatTemplate>(ChatTemplate::from_source(source, {}, "toy"));
  const auto letters = std::make_shared<std::map<TokenId, std::string>>();
  for (TokenId id = 7; id < 128; ++id) (*letters)[id] = std::string(1, static_cast<char>(id));
  ChatCodec codec;
  codec.render = [chat](const json::array& messages, const json::value& tools,
                        bool prompt) -> Expected<std::string> {
    ChatOptions options;
    options.tools = tools;
    options.add_generation_prompt = prompt;
    auto text = chat->render(messages, options);
    if (!text) return failure(text.error().message);
    return *std::move(text);
  };
  codec.encode = toy_encode;
  codec.token_bytes = [letters](TokenId id) -> std::string_view {
    return id <= 6 ? kAdded[static_cast<std::size_t>(id - 1)] : std::string_view((*letters)[id]);
  };
  codec.has_token = [](std::string_view) { return false; };
  return codec;
}

std::string_view source_of(std::string_view name) {
  if (name == "chatml_default_system") return kDefaultSystem;
  if (name == "chatml_plain") return kPlain;
  return name == "chatml_think" ? kThink : kDistill;
}

template <typename T>
std::vector<T> numbers(const json::value& array) {
  return json::value_to<std::vector<T>>(array);
}

GOLDEN_TEST(LossMasks, "loss_masks.json") {
  const json::value& params = c.at("params");
  const json::object& expected = c.at("expected").as_object();
  const ChatCodec codec = toy_codec(source_of(params.at("template").as_string()));
  const auto type = parse_loss_mask_type(params.at("loss_mask_type").as_string());
  ASSERT_TRUE(type);
  const auto masker = LossMasker::make(*type, codec);
  ASSERT_TRUE(masker);
  const auto tokens =
      masker->mask(c.at("inputs").at("messages").as_array(), c.at("inputs").at("tools"));
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ(tokens->ids, numbers<TokenId>(expected.at("token_ids")));
  EXPECT_EQ(tokens->mask, numbers<uint8_t>(expected.at("loss_mask")));
  EXPECT_EQ(response_length(tokens->mask), expected.at("response_length").as_int64());
  if (expected.contains("system_message_length")) {
    const auto lengths = measure_template(codec);
    ASSERT_TRUE(lengths);
    EXPECT_EQ(lengths->system, expected.at("system_message_length").as_int64());
    EXPECT_EQ(lengths->generation, expected.at("gen_token_length").as_int64());
  }
}

GOLDEN_TEST(ResponseLengthFromMask, "response_length_from_mask.json") {
  EXPECT_EQ(response_length(numbers<uint8_t>(c.at("inputs").at("loss_mask"))),
            c.at("expected").at("response_length").as_int64());
}

TEST(LossMask, AVocabularyWithTheDistillMarkerTurnsQwenIntoDistillQwen) {
  ChatCodec codec = toy_codec(kDistill);
  codec.has_token = [](std::string_view token) {
    return token ==
           "<\xef\xbd\x9c"
           "Assistant"
           "\xef\xbd\x9c>";
  };
  const auto masker = LossMasker::make(LossMaskType::kQwen, codec);
  ASSERT_TRUE(masker);
  const json::array messages = {{{"role", "user"}, {"content", "U"}},
                                {{"role", "assistant"}, {"content", "A"}}};
  const auto tokens = masker->mask(messages, nullptr);
  ASSERT_TRUE(tokens);
  EXPECT_EQ(tokens->mask, (std::vector<uint8_t>{0, 0, 0, 1}));
}

TEST(LossMask, MarkersThatAreMissingAreAFailure) {
  const auto masker = LossMasker::make(LossMaskType::kQwen35, toy_codec(kDistill));
  ASSERT_TRUE(masker);
  const json::array messages = {{{"role", "user"}, {"content", "U"}},
                                {{"role", "assistant"}, {"content", "A"}}};
  EXPECT_FALSE(masker->mask(messages, nullptr));
}

TEST(LossMask, ATokenizerThatChangesTheTextHasNoOffsets) {
  ChatCodec codec = toy_codec(kThink);
  codec.token_bytes = [](TokenId) { return std::string_view("?"); };
  const auto masker = LossMasker::make(LossMaskType::kQwen35, codec);
  ASSERT_TRUE(masker);
  const json::array messages = {{{"role", "assistant"}, {"content", "A"}}};
  EXPECT_FALSE(masker->mask(messages, nullptr));
}

TEST(LossMask, ATemplateThatHidesTheProbeIsAFailure) {
  EXPECT_FALSE(LossMasker::make(LossMaskType::kQwen, toy_codec("fixed")));
  EXPECT_FALSE(LossMasker::make(LossMaskType::kQwen,
                                toy_codec("{{ raise_exception('roles must alternate') }}")));
}

TEST(LossMask, UnknownTypesAreNamed) {
  const auto type = parse_loss_mask_type("qwen4");
  ASSERT_FALSE(type);
  EXPECT_NE(type.error().message.find("qwen3_5"), std::string::npos);
}

}  // namespace
}  // namespace slime::text
