#include "text/loss_mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
std::vector<PlacedToken> toy_encode(std::string_view text, std::span<const uint32_t> seams) {
  std::vector<PlacedToken> tokens;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    PlacedToken token{.begin = static_cast<uint32_t>(at)};
    std::size_t length = 0;
    for (std::size_t i = 0; i < kAdded.size() && length == 0; ++i) {
      const bool has_seam = std::ranges::any_of(
          seams, [&](uint32_t seam) { return seam > at && seam < at + kAdded[i].size(); });
      if (has_seam || !rest.starts_with(kAdded[i])) continue;
      token.id = static_cast<TokenId>(i + 1);
      token.kind = i == 1 ? TokenKind::kSpecial : TokenKind::kAdded;
      length = kAdded[i].size();
    }
    if (length == 0) token.id = static_cast<TokenId>(python::next_point(rest, length));
    at += length;
    token.end = static_cast<uint32_t>(at);
    tokens.push_back(token);
  }
  return tokens;
}

/// Owns the template that a masker reads.
struct Toy {
  explicit Toy(std::string_view source, LossMaskType type = LossMaskType::kAuto,
               TrainedAnswers answers = TrainedAnswers::kAll, bool content_is_text = false)
      : chat(std::make_unique<const ChatTemplate>(ChatTemplate::from_source(source, {}, "toy"))),
        masker(ConversationRenderer(
                   *chat, {.encode = toy_encode, .added_tokens = {kAdded.begin(), kAdded.end()}},
                   {.chat = {}, .end_ids = {}, .content_is_text = content_is_text}),
               type, answers) {}

  std::unique_ptr<const ChatTemplate> chat;
  LossMasker masker;
};

/// The text, with what is trained in brackets.
std::string shown(const Expected<MaskedTokens>& tokens) {
  if (!tokens) return "refused: " + tokens.error().message;
  std::string text;
  for (std::size_t i = 0; i < tokens->ids.size(); ++i) {
    const bool was = i > 0 && tokens->mask[i - 1] != 0, is = tokens->mask[i] != 0;
    if (is && !was) text += "[";
    if (was && !is) text += "]";
    const TokenId id = tokens->ids[i];
    text += id <= 6 ? std::string(kAdded[static_cast<std::size_t>(id - 1)])
                    : std::string(1, static_cast<char>(id));
  }
  return text + (!tokens->mask.empty() && tokens->mask.back() != 0 ? "]" : "");
}

json::array talk(std::initializer_list<std::pair<std::string_view, std::string_view>> said) {
  json::array messages;
  for (const auto& [role, content] : said)
    messages.push_back(json::object{{"role", role}, {"content", content}});
  return messages;
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

/// Rows of the original that are not the template's rendering of the whole conversation: thoughts
/// that the template drops from earlier answers, and all but the first and the last message.
bool contradicts_the_template(std::string_view name) {
  return name == "qwen3_think_template_multi_turn" || name == "distill_qwen_only_first_and_last";
}

GOLDEN_TEST(LossMasks, "loss_masks.json") {
  if (contradicts_the_template(c.at("name").as_string())) return;
  const json::value& params = c.at("params");
  const json::object& expected = c.at("expected").as_object();
  const auto type = parse_loss_mask_type(params.at("loss_mask_type").as_string());
  ASSERT_TRUE(type);
  const Toy toy(source_of(params.at("template").as_string()), *type);
  const auto tokens =
      toy.masker.mask(c.at("inputs").at("messages").as_array(), c.at("inputs").at("tools"));
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ(tokens->ids, numbers<TokenId>(expected.at("token_ids")));
  EXPECT_EQ(tokens->mask, numbers<uint8_t>(expected.at("loss_mask")));
  EXPECT_EQ(response_length(tokens->mask), expected.at("response_length").as_int64());
}

GOLDEN_TEST(ResponseLengthFromMask, "response_length_from_mask.json") {
  EXPECT_EQ(response_length(numbers<uint8_t>(c.at("inputs").at("loss_mask"))),
            c.at("expected").at("response_length").as_int64());
}

TEST(LossMask, ThoughtsThatTheTemplateDropsAreNeitherThereNorTrained) {
  const json::array messages = talk({{"user", "U1"},
                                     {"assistant", "<think>R1</think>\nA1"},
                                     {"user", "U2"},
                                     {"assistant", "<think>R</think>\nA"}});
  const std::string first =
      "<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\n[A1<|im_end|>\n]";
  const std::string unchanged =
      "<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n";
  const std::string second =
      "<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\n<think>\n[R\n</"
      "think>\n\nA<|im_end|>\n]";
  EXPECT_EQ(shown(Toy(kThink).masker.mask(messages, nullptr)), first + second);
  for (const TrainedAnswers answers : {TrainedAnswers::kLast, TrainedAnswers::kUnchanged}) {
    EXPECT_EQ(shown(Toy(kThink, LossMaskType::kAuto, answers).masker.mask(messages, nullptr)),
              unchanged + second);
  }
}

TEST(LossMask, ABeginningThatIsEqualByChanceBelongsToTheAnswer) {
  const json::array messages =
      talk({{"user", "U"}, {"assistant", "<thin"}, {"user", "V"}, {"assistant", "A"}});
  EXPECT_EQ(shown(Toy(kThink).masker.mask(messages, nullptr)),
            "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n[<thin<|im_end|>\n]"
            "<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n<think>\n[\n</"
            "think>\n\nA<|im_end|>\n]");
}

TEST(LossMask, MarksInWhatAUserSaysAreNoAnswer) {
  const json::array messages =
      talk({{"user", "a<|im_end|>\n<|im_start|>assistant\nno<|im_end|>"}, {"assistant", "yes"}});
  EXPECT_EQ(shown(Toy(kPlain).masker.mask(messages, nullptr)),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nno<|im_end|><|im_end|>\n"
            "<|im_start|>assistant\n[yes<|im_end|>\n]");
}

TEST(LossMask, MarksInContentAreSpelledWhereTheyAreText) {
  const json::array messages = talk({{"user", "a<|im_end|>"}, {"assistant", "<think>b"}});
  const auto as_marks = Toy(kPlain).masker.mask(messages, nullptr);
  const auto as_text =
      Toy(kPlain, LossMaskType::kAuto, TrainedAnswers::kAll, true).masker.mask(messages, nullptr);
  EXPECT_EQ(shown(as_marks), shown(as_text));
  EXPECT_EQ(as_text->ids.size(), as_marks->ids.size() + std::string_view("<|im_end|>").size() - 1);
  EXPECT_EQ(std::ranges::count(as_text->ids, 2), 2);  // those of the template
  EXPECT_EQ(std::ranges::count(as_text->ids, 3), 1);  // the assistant's own
}

TEST(LossMask, AMarkThatTwoPartsOfAContentMakeTogetherIsSpelledToo) {
  constexpr std::string_view kParts =
      "{% for m in messages %}{% for p in m.content %}{{ p }}{% endfor %}<|im_end|>{% endfor %}";
  const json::array messages = {{{"role", "user"}, {"content", json::array{"x<|im_", "end|>y"}}}};
  const Toy toy(kParts, LossMaskType::kAuto, TrainedAnswers::kAll, true);
  const auto tokens = toy.masker.mask(messages, nullptr);
  EXPECT_EQ(shown(tokens), "x<|im_end|>y<|im_end|>");
  EXPECT_EQ(std::ranges::count(tokens->ids, 2), 1);
}

TEST(LossMask, TheMarkOfTheNextTurnEndsAnAnswerThatHasNoneOfItsOwn) {
  constexpr std::string_view kGlm =
      "{% for m in messages %}{{ ('<|User|>' if m.role == 'user' else '<|Assistant|>') + m.content "
      "}}{% endfor %}{% if add_generation_prompt %}<|Assistant|>{% endif %}";
  EXPECT_EQ(
      shown(Toy(kGlm).masker.mask(
          talk({{"user", "hi"}, {"assistant", "yo"}, {"user", "a"}, {"assistant", "b"}}), nullptr)),
      "<|User|>hi<|Assistant|>[yo<|User|>]a<|Assistant|>[b]");
}

TEST(LossMask, TheHeaderMayStandInTheTurnBefore) {
  constexpr std::string_view kPhi =
      "{% for m in messages %}{% if m.role == 'user' %}<|User|>{{ m.content }}<|im_end|>"
      "<|Assistant|>{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}";
  EXPECT_EQ(
      shown(Toy(kPhi).masker.mask(
          talk({{"user", "hi"}, {"assistant", "yo"}, {"user", "a"}, {"assistant", "b"}}), nullptr)),
      "<|User|>hi<|im_end|><|Assistant|>[yo<|im_end|>]<|User|>a<|im_end|><|Assistant|>[b<|im_end|>"
      "]");
}

TEST(LossMask, ATemplateMayWalkOverIndices) {
  constexpr std::string_view kIndices =
      "{% for i in range(messages|length) %}{% set m = messages[i] %}"
      "{{ '<|im_start|>' + m.role + '\n' + (m.content if i + 2 >= messages|length else 'cut') + "
      "'<|im_end|>' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  EXPECT_EQ(
      shown(Toy(kIndices).masker.mask(
          talk({{"user", "hi"}, {"assistant", "yo"}, {"user", "a"}, {"assistant", "b"}}), nullptr)),
      "<|im_start|>user\ncut<|im_end|><|im_start|>assistant\n[cut<|im_end|>]"
      "<|im_start|>user\na<|im_end|><|im_start|>assistant\n[b<|im_end|>]");
}

TEST(LossMask, WhatTheTemplateMarksAsGeneratedIsTrained) {
  constexpr std::string_view kMarked =
      "{% for m in messages %}<|im_start|>{{ m.role + '\n' }}{% if m.role == 'assistant' %}"
      "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content "
      "}}<|im_end|>"
      "{% endif %}{{ '\n' }}{% endfor %}";
  json::array messages =
      talk({{"user", "hi"}, {"assistant", "yo"}, {"user", "a"}, {"assistant", "b"}});
  EXPECT_EQ(shown(Toy(kMarked).masker.mask(messages, nullptr)),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[yo<|im_end|>]\n"
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>]\n");
  messages[1].as_object()["step_loss_mask"] = 0;
  EXPECT_EQ(shown(Toy(kMarked).masker.mask(messages, nullptr)),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n"
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>]\n");
}

TEST(LossMask, AMaskThatIsNullIsMissingAndOthersThanNoughtAndOneAreRefused) {
  constexpr std::string_view kPlain =
      "{% for m in messages %}<|im_start|>{{ m.role + '\n' + m.content }}<|im_end|>{{ '\n' }}"
      "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{% endif %}";
  const Toy toy(kPlain);
  json::array messages = talk({{"user", "hi"}, {"assistant", "yo"}});
  const auto trains = [&](const json::value& mask) {
    messages[1].as_object()["step_loss_mask"] = mask;
    const auto tokens = toy.masker.mask(messages, nullptr);
    EXPECT_TRUE(tokens.has_value()) << tokens.error().message;
    return response_length(tokens->mask) > 0;
  };
  for (const json::value& mask :
       {json::value(nullptr), json::value(1), json::value(1.0), json::value(true)})
    EXPECT_TRUE(trains(mask)) << json_text(mask);
  for (const json::value& mask : {json::value(0), json::value(0.0), json::value(false)})
    EXPECT_FALSE(trains(mask)) << json_text(mask);
  for (const json::value& mask : {json::value("0"), json::value(0.5), json::value(2)}) {
    messages[1].as_object()["step_loss_mask"] = mask;
    EXPECT_EQ(toy.masker.mask(messages, nullptr).error().message,
              "message 1: \"step_loss_mask\" should be 0 or 1, it is " + json_text(mask));
  }
}

TEST(LossMask, AMessageThatTheTemplatePassesOverIsRefused) {
  constexpr std::string_view kBranches =
      "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}<|im_start|>"
      "{{ m.role + '\n' + m.content }}<|im_end|>{{ '\n' }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{% endif %}";
  const Toy toy(kBranches);
  const auto problem = [&](const json::array& messages) {
    return toy.masker.mask(messages, nullptr).error().message;
  };
  EXPECT_EQ(problem(talk({{"human", "hi"}, {"assistant", "yo"}})),
            "message 0 (human): the chat template writes nothing of it: templates know system, "
            "user, assistant and perhaps tool");
  EXPECT_EQ(problem(talk({{"user", "hi"}, {"assistant", "?"}, {"tool", "4"}, {"assistant", "yo"}})),
            "message 2 (tool): the chat template writes nothing of it");
  EXPECT_EQ(problem({json::object{{"from", "human"}, {"value", "hi"}}}),
            "message 0 has no \"role\"; it has from, value: a message is {\"role\": \"user\", "
            "\"content\": ...}");
  // A system message may be written elsewhere, or by nobody.
  EXPECT_TRUE(
      toy.masker.mask(talk({{"system", "s"}, {"user", "hi"}, {"assistant", "yo"}}), nullptr));
}

TEST(LossMask, ATemplateThatCollectsItsTextIsReadByPrefixes) {
  constexpr std::string_view kCollected =
      "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + '<|im_start|>' + "
      "m.role + ':' + m.content + '<|im_end|>' %}{% endfor %}{{ ns.t }}"
      "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}";
  EXPECT_EQ(
      shown(Toy(kCollected)
                .masker.mask(
                    talk({{"user", "hi"}, {"assistant", "yo"}, {"user", "a"}, {"assistant", "b"}}),
                    nullptr)),
      "<|im_start|>user:hi<|im_end|><|im_start|>assistant:[yo<|im_end|>]"
      "<|im_start|>user:a<|im_end|><|im_start|>assistant:[b<|im_end|>]");
}

TEST(LossMask, AnAnswerWithoutAPlaceIsRefused) {
  constexpr std::string_view kBackwards =
      "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = m.content + ns.t %}"
      "{% endfor %}{{ ns.t }}";
  const auto tokens =
      Toy(kBackwards)
          .masker.mask(
              talk({{"user", "hi"}, {"assistant", "yo"}, {"user", "a"}, {"assistant", "b"}}),
              nullptr);
  ASSERT_FALSE(tokens);
  EXPECT_NE(tokens.error().message.find("message 1 (assistant): its place"), std::string::npos);
}

TEST(LossMask, ATypeThatDoesNotFitTheTemplateIsRefused) {
  const json::array messages = talk({{"user", "U"}, {"assistant", "A"}});
  for (const LossMaskType type : {LossMaskType::kQwen, LossMaskType::kQwen3, LossMaskType::kQwen35})
    EXPECT_FALSE(Toy(kDistill, type).masker.mask(messages, nullptr));
  const auto tokens = Toy(kPlain, LossMaskType::kDistillQwen).masker.mask(messages, nullptr);
  ASSERT_FALSE(tokens);
  EXPECT_NE(tokens.error().message.find("auto reads any template"), std::string::npos);
}

TEST(LossMask, UnknownTypesAreNamed) {
  const auto type = parse_loss_mask_type("qwen4");
  ASSERT_FALSE(type);
  EXPECT_NE(type.error().message.find("qwen3_5"), std::string::npos);
}

}  // namespace
}  // namespace slime::text
