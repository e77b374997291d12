#include "text/chat_template.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "core/nearest_name.h"
#include "core/regular_file.h"
#include "text/unicode/python_text.h"

namespace slime::text {
namespace {

constexpr std::size_t kTemplateLimitBytes = std::size_t{1} << 20;
// transformers' marker: appended to the last message, and where it turns up in the text, the text
// is cut.
constexpr std::string_view kMarker = "CONTINUE_FINAL_MESSAGE_TAG ";

tl::unexpected<TemplateError> refused(std::string message) {
  return tl::make_unexpected(TemplateError{TemplateErrorKind::kRefused, std::move(message), 0});
}

std::string read_template(const std::filesystem::path& path) {
  return read_regular_file(path, kTemplateLimitBytes, "a chat template");
}

std::optional<json::object> read_object_if_there(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  json::value value = read_json_file(path);
  if (!value.is_object())
    throw ConfigError(fmt::format("{}: a JSON object is expected", path.string()));
  return std::move(value.as_object());
}

/// "bos_token": "<s>" or {"content": "<s>", ...}; names already known win.
void collect_special_tokens(const json::object& object, ChatTemplate::SpecialTokens& tokens) {
  for (const auto& member : object) {
    const std::string_view key = member.key();
    if (!key.ends_with("_token")) continue;
    const json::value* text = &member.value();
    if (const json::object* added = text->if_object()) text = added->if_contains("content");
    if (text != nullptr && text->is_string())
      tokens.emplace(key, std::string_view(text->get_string()));
  }
}

/// Thoughts go by two names; templates read the first, gpt-oss's the second. As in transformers since
/// 5.24, a message that has one has both.
json::value with_reasoning(const json::value& message) {
  const json::object& object = message.get_object();
  for (const std::string_view name : {"reasoning_content", "thinking"}) {
    const json::value* thoughts = object.if_contains(name);
    if (thoughts == nullptr || thoughts->is_null()) continue;
    json::object named;
    if (!object.contains("thinking")) named.emplace("thinking", *thoughts);
    for (const auto& member : object) named.emplace(member.key(), member.value());
    named["reasoning_content"] = *thoughts;
    return named;
  }
  return message;
}

/// The text that is continued, with the marker appended in `messages`.
Expected<std::string, TemplateError> mark_last_message(json::array& messages) {
  json::object& last = messages.back().as_object();
  json::value* content = last.if_contains("content");
  if (content == nullptr || content->is_null())
    return refused("the final message has no content to continue");
  json::value* text = content;
  if (json::array* parts = content->if_array()) {
    text = nullptr;
    for (json::value& part : *parts) {
      if (json::object* object = part.if_object(); object != nullptr && object->contains("text"))
        text = object->if_contains("text");
    }
    if (text == nullptr) return refused("the final message has no text to continue");
  }
  if (!text->is_string()) return refused("the content of the final message is no text");
  const std::string before(std::string_view(text->get_string()));
  text->get_string() += kMarker;
  return before;
}

/// Ends the text where the marked message ends. A template that trims content has trimmed the
/// marker's blank too; then the message's own trailing white space goes as well.
Expected<std::string, TemplateError> cut_at_marker(std::string text,
                                                   const std::string& final_text) {
  const std::string_view bare = kMarker.substr(0, kMarker.size() - 1);
  const std::size_t at = text.rfind(bare);
  if (at == std::string::npos || text.find(python::stripped(final_text)) == std::string::npos) {
    return refused(
        "the final message is not in the text that the template makes, so it cannot be continued");
  }
  const bool keeps_spaces = std::string_view(text).substr(at).starts_with(kMarker);
  text.resize(at);
  if (!keeps_spaces) text.resize(python::stripped_right(text).size());
  return text;
}

}  // namespace

Expected<ChatOptions, TemplateError> to_chat_options(const json::object& object) {
  ChatOptions options;
  for (const auto& member : object) {
    const std::string_view key = member.key();
    const json::value& value = member.value();
    if (key == "add_generation_prompt" || key == "continue_final_message") {
      if (!value.is_bool()) return refused(fmt::format("{} is true or false", key));
      (key == "add_generation_prompt" ? options.add_generation_prompt
                                      : options.continue_final_message) = value.get_bool();
    } else if (key == "tools" || key == "documents") {
      if (!value.is_null() && !value.is_array())
        return refused(fmt::format("{} is a list, or null", key));
      (key == "tools" ? options.tools : options.documents) = value;
    } else if (key == "chat_template") {
      if (!value.is_string())
        return refused("chat_template is the name of one of the model's templates");
      options.template_name = std::string_view(value.get_string());
    } else {
      options.variables.emplace(key, value);
    }
  }
  return options;
}

void ChatTemplate::add(const std::string& name, std::string_view source, std::string_view where) {
  try {
    templates_.insert_or_assign(name, jinja::Template::parse(source));
    source_ += source;
  } catch (const jinja::SyntaxError& error) {
    throw ConfigError(
        fmt::format("{}: chat template, line {}: {}", where, error.line, error.message));
  }
}

ChatTemplate ChatTemplate::from_source(std::string_view source, SpecialTokens special_tokens,
                                       std::string_view where) {
  ChatTemplate chat;
  chat.special_tokens_ = std::move(special_tokens);
  chat.add("default", source, where);
  return chat;
}

std::optional<json::object> ChatTemplate::read_special_tokens(
    const std::filesystem::path& model_directory) {
  auto config = read_object_if_there(model_directory / "tokenizer_config.json");
  const auto special = read_object_if_there(model_directory / "special_tokens_map.json");
  if (config) collect_special_tokens(*config, special_tokens_);
  if (special) collect_special_tokens(*special, special_tokens_);
  return config;
}

ChatTemplate ChatTemplate::load(const std::filesystem::path& model_directory,
                                const std::filesystem::path& template_file) {
  ChatTemplate chat;
  static_cast<void>(chat.read_special_tokens(model_directory));
  chat.add("default", read_template(template_file), template_file.string());
  return chat;
}

ChatTemplate ChatTemplate::load(const std::filesystem::path& model_directory) {
  ChatTemplate chat;
  const auto config_path = model_directory / "tokenizer_config.json";
  const auto config = chat.read_special_tokens(model_directory);

  const auto add_json = [&](const json::value& value, const std::filesystem::path& path) {
    if (const json::string* source = value.if_string()) {
      chat.add("default", *source, path.string());
      return;
    }
    const json::array* list = value.if_array();
    if (list == nullptr)
      throw ConfigError(
          fmt::format("{}: chat_template is neither a text nor a list", path.string()));
    for (const json::value& entry : *list) {
      const json::object* object = entry.if_object();
      const json::value* name = object == nullptr ? nullptr : object->if_contains("name");
      const json::value* source = object == nullptr ? nullptr : object->if_contains("template");
      if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string()) {
        throw ConfigError(fmt::format(
            "{}: an entry of chat_template needs the texts `name` and `template`", path.string()));
      }
      chat.add(std::string(std::string_view(name->get_string())), source->get_string(),
               path.string());
    }
  };

  if (const auto path = model_directory / "chat_template.jinja"; std::filesystem::exists(path))
    chat.add("default", read_template(path), path.string());
  if (const auto folder = model_directory / "additional_chat_templates";
      std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".jinja") continue;
      chat.add(entry.path().stem().string(), read_template(entry.path()), entry.path().string());
    }
  }
  if (!chat.templates_.empty()) return chat;
  if (const json::value* value = config ? config->if_contains("chat_template") : nullptr;
      value != nullptr && !value->is_null()) {
    add_json(*value, config_path);
  } else if (const auto json_path = model_directory / "chat_template.json";
             std::filesystem::exists(json_path)) {
    const auto object = read_object_if_there(json_path);
    const json::value* inner = object->if_contains("chat_template");
    if (inner == nullptr)
      throw ConfigError(fmt::format("{}: has no chat_template", json_path.string()));
    add_json(*inner, json_path);
  }
  if (chat.templates_.empty()) {
    throw ConfigError(
        fmt::format("{}: no chat template: neither chat_template.jinja nor `chat_template` in "
                    "tokenizer_config.json; "
                    "give plain text prompts, or put a template there",
                    model_directory.string()));
  }
  return chat;
}

bool ChatTemplate::reads(std::string_view variable) const {
  return std::ranges::any_of(
      templates_, [&](const auto& named) { return named.second.names().contains(variable); });
}

std::optional<std::string> ChatTemplate::nearest_variable(std::string_view variable) const {
  std::vector<std::string_view> known;
  for (const auto& [name, program] : templates_)
    known.insert(known.end(), program.names().begin(), program.names().end());
  const auto nearest = nearest_name(variable, known);
  return nearest ? std::optional<std::string>(*nearest) : std::nullopt;
}

std::vector<std::string> ChatTemplate::names() const {
  std::vector<std::string> names;
  for (const auto& [name, program] : templates_) names.push_back(name);
  return names;
}

Expected<const jinja::Template*, TemplateError> ChatTemplate::choose(
    const ChatOptions& options) const {
  std::string name = options.template_name;
  if (name.empty())
    name = !options.tools.is_null() && templates_.contains("tool_use") ? "tool_use" : "default";
  const auto found = templates_.find(name);
  if (found == templates_.end()) {
    return refused(fmt::format("the model has no chat template \"{}\", but: {}", name,
                               fmt::join(names(), ", ")));
  }
  return &found->second;
}

Expected<std::string, TemplateError> ChatTemplate::render(const json::array& messages,
                                                          const ChatOptions& options,
                                                          jinja::Trace* trace) const {
  check(trace == nullptr || !options.continue_final_message,
        "a message that is continued is cut out of the text, so its pieces have no places");
  if (messages.empty()) return refused("a chat needs at least one message");
  for (const json::value& message : messages) {
    if (!message.is_object()) return refused("a message is an object with role and content");
  }
  if (options.continue_final_message && options.add_generation_prompt) {
    return refused(
        "continue_final_message and add_generation_prompt exclude each other: either the last "
        "message goes on, or a new one begins");
  }
  const auto program = choose(options);
  if (!program) return tl::make_unexpected(program.error());

  json::array marked;
  std::string final_text;
  if (options.continue_final_message) {
    marked = messages;
    auto text = mark_last_message(marked);
    if (!text) return tl::make_unexpected(text.error());
    final_text = *std::move(text);
  }

  // The first of a name wins: what the caller gives hides a special token.
  jinja::Variables variables;
  try {
    std::vector<jinja::Value> values;
    for (const json::value& message : options.continue_final_message ? marked : messages) {
      values.push_back(jinja::from_json(with_reasoning(message)));
      if (trace != nullptr) trace->subjects.push_back(values.back().if_dict());
    }
    variables.emplace_back("messages", jinja::make_list(std::move(values)));
    variables.emplace_back("tools", jinja::from_json(options.tools));
    variables.emplace_back("documents", jinja::from_json(options.documents));
    variables.emplace_back("add_generation_prompt", options.add_generation_prompt);
    for (const auto& member : options.variables)
      variables.emplace_back(member.key(), jinja::from_json(member.value()));
    for (const auto& [name, text] : special_tokens_) variables.emplace_back(name, text);
  } catch (const jinja::EvaluationError& error) {
    return tl::make_unexpected(TemplateError{error.kind, error.message, 0});
  }
  auto text = (*program)->render(variables, {.limits = {}, .now = options.now, .trace = trace});
  if (!text || !options.continue_final_message) return text;
  return cut_at_marker(*std::move(text), final_text);
}

}  // namespace slime::text
