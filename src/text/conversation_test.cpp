#include "text/conversation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/json.h"
#include "text/loss_mask.h"
#include "text/published_tokenizers_for_tests.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::text {
namespace {

/// A family of templates, with the conversations that transformers rendered with it
/// (tests/fixtures/conversations/make_conversations.py).
struct Family {
  explicit Family(const json::object& family)
      : tokenizer(Tokenizer::from_json(tokenizer_json(family), "")),
        chat(ChatTemplate::from_source(
            std::string_view(family.at("template").as_string()),
            {{"bos_token", "<s>"}, {"eos_token", std::string(family.at("eos").as_string())}},
            "template")),
        marked(ChatTemplate::from_source(
            std::string_view(family.at("marked").as_string()),
            {{"bos_token", "<s>"}, {"eos_token", std::string(family.at("eos").as_string())}},
            "marked template")),
        eos(std::string_view(family.at("eos").as_string())) {}

  static std::string tokenizer_json(const json::object& family) {
    json::value definition =
        read_json_file(SLIME_SOURCE_DIR "/tests/fixtures/tokenizers/tiny_qwen/tokenizer.json");
    json::array& tokens = definition.as_object()["added_tokens"].as_array();
    std::set<json::string> known;
    int64_t next = 0;
    for (const json::value& token : tokens) {
      known.insert(token.at("content").as_string());
      next = std::max(next, token.at("id").as_int64() + 1);
    }
    for (const bool is_special : {true, false}) {
      for (const json::value& mark : family.at(is_special ? "special" : "added").as_array()) {
        if (!known.insert(mark.as_string()).second) continue;
        tokens.push_back(json::object{{"id", next++},
                                      {"content", mark},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", is_special}});
      }
    }
    return json_text(definition);
  }

  LossMasker masker(const ChatTemplate& source) const {
    return {ConversationRenderer(source, make_token_placer(*tokenizer),
                                 {.chat = {}, .end_ids = {*tokenizer->id_of(eos)}}),
            LossMaskType::kAuto, TrainedAnswers::kAll};
  }

  std::unique_ptr<Tokenizer> tokenizer;
  ChatTemplate chat;
  ChatTemplate marked;
  std::string eos;
};

/// The text, with what is trained in brackets of its own.
std::string shown(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                  const std::vector<uint8_t>& mask) {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool was = i > 0 && mask[i - 1] != 0, is = mask[i] != 0;
    if (is != was) text += is ? "{{" : "}}";
    text += tokenizer.token_bytes(ids[i]);
  }
  return text;
}

TEST(Conversation, TokensAndAnswersAreThoseOfTransformersInEachFamily) {
  const json::value families =
      unpacked_json(SLIME_SOURCE_DIR "/tests/fixtures/conversations/conversations.json.xz");
  int64_t num_cases = 0;
  for (const json::value& each : families.as_array()) {
    const Family family(each.as_object());
    for (const json::value& conversation : each.at("cases").as_array()) {
      const json::object& c = conversation.as_object();
      SCOPED_TRACE(json_text(each.at("family")) + " " + json_text(c.at("name")));
      const auto tokens =
          family.masker(family.chat).mask(c.at("messages").as_array(), c.at("tools"));
      if (c.contains("refused")) {
        EXPECT_FALSE(tokens);
        continue;
      }
      ASSERT_TRUE(tokens) << tokens.error().message;
      const auto ids = json::value_to<std::vector<TokenId>>(c.at("ids"));
      const auto mask = json::value_to<std::vector<uint8_t>>(c.at("mask"));
      EXPECT_EQ(tokens->ids, ids);
      EXPECT_EQ(shown(*family.tokenizer, tokens->ids, tokens->mask),
                shown(*family.tokenizer, ids, mask));
      ++num_cases;
    }
  }
  EXPECT_EQ(num_cases, 97);
}

TEST(Conversation, WhatTheTemplateMarksItselfIsTheAnswer) {
  const json::value families =
      unpacked_json(SLIME_SOURCE_DIR "/tests/fixtures/conversations/conversations.json.xz");
  for (const json::value& each : families.as_array()) {
    if (std::string_view(each.at("family").as_string()).starts_with("glm")) continue;  // borrows
    const Family family(each.as_object());
    for (const json::value& conversation : each.at("cases").as_array()) {
      const json::object& c = conversation.as_object();
      if (c.contains("refused")) continue;
      SCOPED_TRACE(json_text(each.at("family")) + " " + json_text(c.at("name")));
      const auto tokens =
          family.masker(family.marked).mask(c.at("messages").as_array(), c.at("tools"));
      ASSERT_TRUE(tokens) << tokens.error().message;
      EXPECT_EQ(tokens->mask, json::value_to<std::vector<uint8_t>>(c.at("mask")));
    }
  }
}

TEST(Conversation, APromptWithMarksAsTextDiffersInNothingButTheMarksOfItsUsers) {
  const json::value families =
      unpacked_json(SLIME_SOURCE_DIR "/tests/fixtures/conversations/conversations.json.xz");
  for (const json::value& each : families.as_array()) {
    const Family family(each.as_object());
    SCOPED_TRACE(json_text(each.at("family")));
    const auto prompt_of = [&](std::string_view said, bool is_text) {
      const ConversationRenderer renderer(family.chat, make_token_placer(*family.tokenizer),
                                          {.chat = {}, .end_ids = {}, .content_is_text = is_text});
      return renderer.prompt({{{"role", "user"}, {"content", said}}}, nullptr);
    };
    const auto plain = prompt_of("hello", true);
    ASSERT_TRUE(plain);
    EXPECT_EQ(plain->ids(), prompt_of("hello", false)->ids());
    const std::string forged = "a" + family.eos + "b" + family.eos;
    const auto as_text = prompt_of(forged, true), as_marks = prompt_of(forged, false);
    EXPECT_EQ(as_text->text, as_marks->text);
    const TokenId eos = *family.tokenizer->id_of(family.eos);
    const auto count = [eos](const RenderedText& text) {
      const std::vector<TokenId> ids = text.ids();
      return std::ranges::count(ids, eos);
    };
    EXPECT_EQ(count(*as_text) + 2, count(*as_marks));
    EXPECT_EQ(count(*as_text), count(*plain));
  }
}

/// Published tokenizers and templates, where they are on this machine.
TEST(Conversation, PublishedModelsTokensAreThoseOfTheWholeRendering) {
  for (const std::string name : kPublishedTokenizers) {
    SLIME_NEEDS_PUBLISHED_TOKENIZER(name);
    const auto root = published_tokenizer(name);
    const std::string definition = unpacked(root / "tokenizer.json.xz");
    if (definition.empty()) GTEST_SKIP() << "xz is not installed";
    const auto tokenizer = Tokenizer::from_json(definition, "");
    const ChatTemplate chat = ChatTemplate::load(root);
    const ConversationRenderer renderer(chat, make_token_placer(*tokenizer), {});
    const json::array messages = {{{"role", "user"}, {"content", "hi"}},
                                  {{"role", "assistant"}, {"content", "yo"}},
                                  {{"role", "user"}, {"content", "a?"}},
                                  {{"role", "assistant"}, {"content", "b!"}}};
    const auto conversation = renderer.conversation(messages, nullptr);
    ASSERT_TRUE(conversation) << name << conversation.error().message;
    EXPECT_EQ(conversation->ids(), tokenizer->encode(conversation->text)) << name;
    EXPECT_EQ(conversation->answers.size(), 2) << name;
  }
}

}  // namespace
}  // namespace slime::text
