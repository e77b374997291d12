#include <gtest/gtest.h>

#include <string>

#include "text/messages/call_format.h"
#include "text/messages/reasoning_format.h"

namespace slime::text {
namespace {

std::string template_format(std::string_view chat_template) {
  const CallFormat* format = call_format_of_template(chat_template);
  return format == nullptr ? "none" : std::string(format->name);
}

TEST(CallFormats, AreFoundByTheNamesOfOtherServers) {
  EXPECT_EQ((*find_call_format("qwen"))->name, "qwen25");
  EXPECT_EQ((*find_call_format("openai"))->name, "gpt-oss");
  EXPECT_EQ((*find_call_format("deepseekv4"))->name, "deepseekv32");
}

TEST(CallFormats, AWrongNameIsRefusedWithThoseThatThereAre) {
  const auto found = find_call_format("qwen3_code");
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("did you mean qwen3_coder?"), std::string::npos);
  EXPECT_NE(found.error().message.find("kimi_k2, lfm2"), std::string::npos);
}

TEST(CallFormats, ANameWhoseFormatIsNotReadIsRefusedAsSuch) {
  const auto found = find_call_format("kimi_k3");
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("SGLang's format of that name is not read"),
            std::string::npos);
}

TEST(CallFormats, AreToldFromATemplate) {
  EXPECT_EQ(template_format("<tool_call>\n{\"name\": <function-name>}"), "qwen25");
  EXPECT_EQ(template_format("<tool_call>\n<function=example>"), "qwen3_coder");
  EXPECT_EQ(template_format("<tool_call>{name}\\n<arg_key>"), "glm45");
  EXPECT_EQ(template_format("<tool_call>{name}<arg_key>"), "glm47");
  EXPECT_EQ(template_format("<\uff5ctool\u2581sep\uff5c>f\n```json"), "deepseekv3");
  EXPECT_EQ(template_format("<\uff5ctool\u2581sep\uff5c>"), "deepseekv31");
  EXPECT_EQ(template_format("<|start|>assistant<|channel|>"), "gpt-oss");
  EXPECT_EQ(template_format("{{ message.content }}"), "none");
}

TEST(ReasoningFormats, AreToldFromATemplate) {
  EXPECT_EQ(reasoning_format_of_template("{{ '</think>' }}")->name, "qwen3");
  EXPECT_EQ(reasoning_format_of_template("[THINK]")->name, "mistral");
  EXPECT_EQ(reasoning_format_of_template("<|im_start|>"), nullptr);
}

TEST(ReasoningFormats, ThePromptsEndSaysWhetherThoughtsAreOpen) {
  const ReasoningFormat& think = **find_reasoning_format("deepseek-r1");
  EXPECT_EQ(prompt_tail(think, "<|im_start|>assistant\n<think>\n"), PromptTail::kReasoning);
  EXPECT_EQ(prompt_tail(think, "assistant\n<think>\n\n</think>\n\n"), PromptTail::kMessage);
  // A user who writes the mark opens nothing; a message that is continued after it does.
  EXPECT_EQ(prompt_tail(think, "user\nWhat is <think>?\nassistant\n"), PromptTail::kMessage);
  EXPECT_EQ(prompt_tail(think, "assistant\n<think>\nFirst, ", true), PromptTail::kReasoning);
}

TEST(ReasoningFormats, ThePromptsEndSaysInWhichMessageOfHarmonyItIs) {
  const ReasoningFormat& harmony = **find_reasoning_format("gpt-oss");
  EXPECT_EQ(prompt_tail(harmony, "<|end|><|start|>assistant"), PromptTail::kMessage);
  EXPECT_EQ(prompt_tail(harmony, "<|start|>assistant<|channel|>analysis<|message|>"),
            PromptTail::kReasoning);
  EXPECT_EQ(prompt_tail(harmony, "<|start|>assistant<|channel|>final<|message|>The", true),
            PromptTail::kContent);
}

}  // namespace
}  // namespace slime::text
