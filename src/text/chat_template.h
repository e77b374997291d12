#pragma once

/// Messages to the text a model was trained on, as `tokenizer.apply_chat_template` of transformers
/// makes it.
///
///   const ChatTemplate chat = ChatTemplate::load("Qwen3-0.6B");
///   chat.render(messages, {.add_generation_prompt = true})
///     -> "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
///
/// The template is a program that came with the model: it runs in an interpreter with limits
/// (text/jinja/template.h) and sees nothing but the messages, the options and the special tokens.

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "core/json.h"
#include "text/jinja/template.h"
#include "text/jinja/template_error.h"

namespace slime::text {

struct ChatOptions {
  /// End with the header of an assistant message.
  bool add_generation_prompt = false;
  /// Leave the last message open: the text ends where its content ends. Not together with
  /// add_generation_prompt.
  bool continue_final_message = false;
  json::value tools;      // array of function schemas, or null
  json::value documents;  // array, or null
  /// Which template of a model that has several. Empty: "tool_use" when tools are given and there
  /// is one, else "default".
  std::string template_name;
  /// Whatever else the template asks for: enable_thinking, reasoning_effort, ...
  json::object variables;
  /// What strftime_now shows; some templates write the date into the prompt.
  std::chrono::local_seconds now{};
};

/// The options of a JSON object: the names above (`chat_template` is template_name), all others are
/// variables. A value of the wrong type is kRefused.
Expected<ChatOptions, TemplateError> to_chat_options(const json::object& object);

/// Immutable; render may run on any number of threads.
class ChatTemplate final {
 public:
  using SpecialTokens = std::map<std::string, std::string>;  // "bos_token" -> "<s>"

  /// Reads chat_template.jinja and additional_chat_templates/*.jinja, or else `chat_template` of
  /// tokenizer_config.json, or else chat_template.json; special tokens from tokenizer_config.json
  /// and special_tokens_map.json. Throws ConfigError when there is no template, or it is no valid
  /// one: file, line and reason.
  static ChatTemplate load(const std::filesystem::path& model_directory);
  /// The template of a file, with the directory's special tokens.
  static ChatTemplate load(const std::filesystem::path& model_directory,
                           const std::filesystem::path& template_file);

  /// One template from its source, called `where` in errors. Throws ConfigError.
  static ChatTemplate from_source(std::string_view source, SpecialTokens special_tokens,
                                  std::string_view where);

  /// `messages`: objects with role and content. kRefused where the call itself is wrong: no
  /// messages, no object, options that contradict, a continued message that the template leaves
  /// out. `trace`, where given, is filled: its subjects are the messages, by their places. Not
  /// together with continue_final_message.
  Expected<std::string, TemplateError> render(const json::array& messages,
                                              const ChatOptions& options,
                                              jinja::Trace* trace = nullptr) const;

  /// Whether one of its templates has an expression that looks up this name.
  bool reads(std::string_view variable) const;
  /// The name that its templates look up and that a mistyped one stands for.
  std::optional<std::string> nearest_variable(std::string_view variable) const;

  /// Names of its templates: {"default"} for nearly all models.
  std::vector<std::string> names() const;

  /// Their sources, one after the other.
  const std::string& source() const { return source_; }

 private:
  Expected<const jinja::Template*, TemplateError> choose(const ChatOptions& options) const;
  void add(const std::string& name, std::string_view source, std::string_view where);
  /// Reads the special tokens; returns tokenizer_config.json.
  std::optional<json::object> read_special_tokens(const std::filesystem::path& model_directory);

  std::map<std::string, jinja::Template> templates_;
  std::string source_;
  SpecialTokens special_tokens_;
};

}  // namespace slime::text
