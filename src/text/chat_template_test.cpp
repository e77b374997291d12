#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "text/published_tokenizers_for_tests.h"

namespace slime::text {
namespace {

constexpr std::string_view kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

json::array messages(std::string_view text) { return parse_json(text, "messages").as_array(); }

ChatTemplate template_of(std::string_view source) {
  return ChatTemplate::from_source(source, {{"bos_token", "<s>"}}, "test");
}

std::string text_of(const ChatTemplate& chat, std::string_view list,
                    const ChatOptions& options = {}) {
  auto text = chat.render(messages(list), options);
  return text ? *text : std::string(to_string(text.error().kind)) + ": " + text.error().message;
}

TemplateErrorKind error_of(const ChatTemplate& chat, std::string_view list,
                           const ChatOptions& options = {}) {
  const auto text = chat.render(messages(list), options);
  EXPECT_FALSE(text.has_value());
  return text ? TemplateErrorKind::kLimit : text.error().kind;
}

/// A model directory that is gone at the end of the test.
class ModelDirectory {
 public:
  ModelDirectory()
      : path_(std::filesystem::temp_directory_path() /
              ("slime_chat_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~ModelDirectory() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, std::string_view text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }

 private:
  std::filesystem::path path_;
};

TEST(ChatTemplate, RendersMessagesAndTheGenerationPrompt) {
  const ChatTemplate chat = template_of(kChatMl);
  const std::string_view list = R"([{"role": "user", "content": "Hi"}])";
  EXPECT_EQ(text_of(chat, list), "<|im_start|>user\nHi<|im_end|>\n");
  ChatOptions options;
  options.add_generation_prompt = true;
  EXPECT_EQ(text_of(chat, list, options),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, ACallersVariableHidesASpecialToken) {
  const ChatTemplate chat =
      template_of("{{ bos_token }}{{ documents is none }}{{ eos_token is defined }}");
  const std::string_view list = R"([{"role": "user", "content": "Hi"}])";
  EXPECT_EQ(text_of(chat, list), "<s>TrueFalse");
  ChatOptions options;
  options.variables["bos_token"] = "mine";
  EXPECT_EQ(text_of(chat, list, options), "mineTrueFalse");
}

TEST(ChatTemplate, ContinuesTheFinalMessage) {
  ChatOptions options;
  options.continue_final_message = true;
  const std::string_view list = R"([{"role": "assistant", "content": "One, two,  "}])";
  EXPECT_EQ(text_of(template_of(kChatMl), list, options), "<|im_start|>assistant\nOne, two,  ");
  const ChatTemplate trims =
      template_of("{% for m in messages %}{{ m.role }}: {{ m.content | trim }}<end>{% endfor %}");
  EXPECT_EQ(text_of(trims, list, options), "assistant: One, two,");
}

TEST(ChatTemplate, ContinuesTheLastTextOfContentParts) {
  ChatOptions options;
  options.continue_final_message = true;
  const ChatTemplate chat = template_of(
      "{% for m in messages %}{% for p in m.content %}{{ p.text or '<image>' }}{% endfor %}<end>{% "
      "endfor %}");
  EXPECT_EQ(
      text_of(chat,
              R"([{"role": "user", "content": [{"text": "a"}, {"text": "b"}, {"type": "image"}]}])",
              options),
      "ab");
}

TEST(ChatTemplate, WrongCallsAreRefused) {
  const ChatTemplate chat = template_of(kChatMl);
  const std::string_view list = R"([{"role": "user", "content": "Hi"}])";
  EXPECT_EQ(error_of(chat, "[]"), TemplateErrorKind::kRefused);
  EXPECT_EQ(error_of(chat, "[1]"), TemplateErrorKind::kRefused);
  ChatOptions both;
  both.add_generation_prompt = both.continue_final_message = true;
  EXPECT_EQ(error_of(chat, list, both), TemplateErrorKind::kRefused);
  ChatOptions named;
  named.template_name = "rag";
  EXPECT_EQ(error_of(chat, list, named), TemplateErrorKind::kRefused);
  ChatOptions going_on;
  going_on.continue_final_message = true;
  EXPECT_EQ(error_of(chat, R"([{"role": "user"}])", going_on), TemplateErrorKind::kRefused);
  EXPECT_EQ(error_of(template_of("fixed"), list, going_on), TemplateErrorKind::kRefused);
}

TEST(ChatTemplate, OptionsComeFromAnObject) {
  const auto options = to_chat_options(
      parse_json(R"({"add_generation_prompt": true, "tools": [{}], "enable_thinking": false})",
                 "options")
          .as_object());
  ASSERT_TRUE(options);
  EXPECT_TRUE(options->add_generation_prompt);
  EXPECT_EQ(options->tools.as_array().size(), 1u);
  EXPECT_EQ(options->variables.at("enable_thinking"), json::value(false));
  EXPECT_FALSE(
      to_chat_options(parse_json(R"({"add_generation_prompt": 1})", "options").as_object()));
  EXPECT_FALSE(to_chat_options(parse_json(R"({"tools": "x"})", "options").as_object()));
}

TEST(ChatTemplate, TheErrorOfATemplateIsItsMessage) {
  const auto text = template_of("{{ raise_exception('roles must alternate') }}")
                        .render(messages(R"([{"role": "user"}])"), {});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().kind, TemplateErrorKind::kTemplate);
  EXPECT_EQ(text.error().message, "roles must alternate");
}

TEST(ChatTemplate, LoadsFromTheTokenizerConfiguration) {
  const ModelDirectory model;
  model.write(
      "tokenizer_config.json",
      R"({"chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ unk_token }}",
                  "bos_token": {"content": "<b>", "lstrip": false}, "eos_token": "<e>", "pad_token": null})");
  model.write("special_tokens_map.json", R"({"eos_token": "<old>", "unk_token": "<u>"})");
  EXPECT_EQ(text_of(ChatTemplate::load(model.path()), R"([{"role": "user"}])"), "<b><e>False<u>");
}

TEST(ChatTemplate, SeveralTemplatesAreChosenByNameOrByTools) {
  const ModelDirectory model;
  model.write("tokenizer_config.json",
              R"({"chat_template": [{"name": "default", "template": "plain"},
              {"name": "tool_use", "template": "tools"}, {"name": "rag", "template": "rag"}]})");
  const ChatTemplate chat = ChatTemplate::load(model.path());
  const std::string_view list = R"([{"role": "user"}])";
  EXPECT_EQ(text_of(chat, list), "plain");
  ChatOptions options;
  options.tools = json::array{};
  EXPECT_EQ(text_of(chat, list, options), "tools");
  options.template_name = "rag";
  EXPECT_EQ(text_of(chat, list, options), "rag");
}

TEST(ChatTemplate, AFileOfItsOwnComesFirst) {
  const ModelDirectory model;
  model.write("tokenizer_config.json", R"({"chat_template": "config"})");
  model.write("chat_template.json", R"({"chat_template": "json"})");
  const std::string_view list = R"([{"role": "user"}])";
  EXPECT_EQ(text_of(ChatTemplate::load(model.path()), list), "config");
  model.write("chat_template.jinja", "jinja");
  model.write("additional_chat_templates/rag.jinja", "rag");
  const ChatTemplate chat = ChatTemplate::load(model.path());
  EXPECT_EQ(text_of(chat, list), "jinja");
  EXPECT_EQ(chat.names(), (std::vector<std::string>{"default", "rag"}));
}

// So does transformers: files win over the configuration, whichever of them there are.
TEST(ChatTemplate, AdditionalTemplatesCountWithoutADefaultFileToo) {
  const ModelDirectory model;
  model.write("tokenizer_config.json", R"({"chat_template": "config"})");
  model.write("additional_chat_templates/tool_use.jinja", "tools");
  const ChatTemplate chat = ChatTemplate::load(model.path());
  EXPECT_EQ(chat.names(), std::vector<std::string>{"tool_use"});
  ChatOptions options;
  options.tools = json::array{json::object{{"name", "f"}}};
  EXPECT_EQ(text_of(chat, R"([{"role": "user"}])", options), "tools");
}

TEST(ChatTemplate, ABrokenOrMissingTemplateIsAConfigurationError) {
  const ModelDirectory model;
  EXPECT_THROW(ChatTemplate::load(model.path()), ConfigError);
  model.write("tokenizer_config.json", R"({"chat_template": "a\n{% if %}"})");
  try {
    ChatTemplate::load(model.path());
    FAIL() << "loaded";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("tokenizer_config.json: chat template, line 2"),
              std::string::npos)
        << error.what();
  }
}

/// Published models' templates and what transformers makes of them. Not part of the repository.
class PublishedTemplates : public testing::TestWithParam<const char*> {};

TEST_P(PublishedTemplates, GiveTheRecordedTexts) {
  SLIME_NEEDS_PUBLISHED_TOKENIZER(GetParam());
  const auto directory = published_tokenizer(GetParam());
  const ChatTemplate chat = ChatTemplate::load(directory);
  const json::value golden = read_json_file(directory / "golden_chat.json");
  for (const json::value& item : golden.at("chat").as_array()) {
    SCOPED_TRACE(std::string_view(item.at("name").as_string()));
    Expected<std::string, TemplateError> text;
    auto options = to_chat_options(item.at("options").as_object());
    ASSERT_TRUE(options);
    options->now = std::chrono::local_days(std::chrono::year(2026) / 1 / 31);  // strftime_now_date
    text = chat.render(item.at("messages").as_array(), *options);
    const json::object& expected = item.as_object();
    if (expected.contains("rendered")) {
      ASSERT_TRUE(text) << text.error().message;
      EXPECT_EQ(*text, std::string_view(expected.at("rendered").as_string()));
      continue;
    }
    ASSERT_FALSE(text) << *text;
    const json::value& error = expected.at("error");
    EXPECT_EQ(to_string(text.error().kind), std::string_view(error.at("kind").as_string()))
        << text.error().message;
    if (text.error().kind == TemplateErrorKind::kTemplate) {
      EXPECT_EQ(text.error().message, std::string_view(error.at("message").as_string()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, PublishedTemplates, testing::ValuesIn(kPublishedTokenizers));

}  // namespace
}  // namespace slime::text
