#include "engine/chat/template_traits.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace slime::engine {
namespace {

// Words that no template has.
constexpr std::string_view kUser = "qvuserqv";
constexpr std::string_view kText = "qvtextqv";
constexpr std::string_view kSystem = "qvsystemqv";
constexpr std::string_view kLaterSystem = "qvlaterqv";
constexpr std::string_view kTool = "qvtoolqv";
constexpr std::string_view kKey = "qvkeyqv";
constexpr std::string_view kValue = "qvvalueqv";
constexpr std::string_view kResult = "qvresultqv";
constexpr std::string_view kUnknownRole = "qvroleqv";
// Spacing that no printer of JSON writes.
constexpr std::string_view kArguments = R"({"qvkeyqv":  "qvvalueqv" })";
constexpr std::string_view kLongId = "call_0123456789abcdef01234567";
constexpr std::string_view kShortId = "abcde1234";

json::object message(std::string_view role, json::value content) {
  return {{"role", role}, {"content", std::move(content)}};
}

bool has(const std::optional<std::string>& text, std::string_view word) {
  return text && text->find(word) != std::string::npos;
}

bool shows(const std::optional<std::string>& text, std::initializer_list<std::string_view> words) {
  return std::ranges::all_of(words, [&](std::string_view word) { return has(text, word); });
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

class Probe final {
 public:
  explicit Probe(const RenderChatFn& render) : render_(render) {}

  TemplateTraits traits() {
    find_content_forms();
    find_roles();
    find_call_forms();
    return traits_;
  }

 private:
  std::optional<std::string> rendered(json::array messages, bool has_tools = false) const {
    json::object options{{"add_generation_prompt", true}};
    if (has_tools) {
      options["tools"] = json::array{
          json::object{{"type", "function"},
                       {"function",
                        {{"name", kTool},
                         {"description", "d"},
                         {"parameters",
                          {{"type", "object"}, {"properties", {{kKey, {{"type", "string"}}}}}}}}}}};
    }
    try {
      return render_(messages, options);
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }

  json::value content(std::string_view text) const {
    if (traits_.takes_text) return json::value(text);
    return json::array{json::object{{"type", "text"}, {"text", text}}};
  }
  json::object said(std::string_view role, std::string_view text) const {
    return message(role, content(text));
  }

  void find_content_forms() {
    const json::array parts{json::object{{"type", "text"}, {"text", kText}}};
    const auto of_parts = rendered({message("user", parts)});
    // A template that prints a list as Python does shows the text, too.
    traits_.takes_parts =
        has(of_parts, kText) && !has(of_parts, "'type'") && !has(of_parts, "\"type\"");
    traits_.takes_text =
        !traits_.takes_parts || has(rendered({message("user", json::value(kText))}), kText);
  }

  void find_roles() {
    traits_.takes_system = has(rendered({said("system", kSystem), said("user", kUser)}), kSystem);
    const auto second =
        rendered({said("system", kSystem), said("system", kLaterSystem), said("user", kUser)});
    const auto middle = rendered({said("user", kUser), said("assistant", kText),
                                  said("system", kLaterSystem), said("user", kUser)});
    traits_.takes_later_system =
        shows(second, {kSystem, kLaterSystem}) && has(middle, kLaterSystem);
    // One that prints any role knows none.
    const auto developer = rendered({said("developer", kSystem), said("user", kUser)});
    const auto unknown = rendered({said(kUnknownRole, kSystem), said("user", kUser)});
    traits_.knows_developer =
        has(developer, kSystem) &&
        (!unknown || *developer != replaced(*unknown, kUnknownRole, "developer"));
  }

  /// A conversation with a call and its result.
  std::optional<std::string> called(const json::value& content_of_call,
                                    const json::value& arguments) const {
    json::object call = message("assistant", content_of_call);
    call["tool_calls"] =
        json::array{json::object{{"id", id_},
                                 {"type", "function"},
                                 {"function", {{"name", kTool}, {"arguments", arguments}}}}};
    json::object result = said("tool", kResult);
    result["tool_call_id"] = id_;
    return rendered({said("user", kUser), std::move(call), std::move(result)}, true);
  }

  /// How often the tool's name is shown without the call.
  bool shows_call(const std::optional<std::string>& text) const {
    return text && count_of(*text) > num_without_call_;
  }
  static std::size_t count_of(std::string_view text) {
    std::size_t count = 0;
    for (auto at = text.find(kTool); at != std::string_view::npos; at = text.find(kTool, at + 1))
      ++count;
    return count;
  }

  void find_call_forms() {
    const json::value text(kArguments);
    if (const auto without = rendered({said("user", kUser)}, true))
      num_without_call_ = count_of(*without);
    const json::object object{{kKey, kValue}};
    const auto any = [&] {
      return called("", text) || called("", object) || called(nullptr, text) ||
             called(nullptr, object);
    };
    if (!any()) {
      id_ = kShortId;
      if (any()) {
        traits_.call_ids = CallIdForm::kNineCharacters;
      } else {
        id_ = kLongId;
      }
    }
    find_argument_forms("", object);
    const bool shows_with_text = traits_.takes_text_arguments || traits_.takes_object_arguments;
    if (!shows_with_text) {
      find_argument_forms(nullptr, object);
      traits_.wants_null_beside_calls =
          traits_.takes_text_arguments || traits_.takes_object_arguments;
    }
    const bool shows_any = traits_.takes_text_arguments || traits_.takes_object_arguments;
    if (!shows_any) {  // it writes no calls: what it does not fail on
      traits_.takes_text_arguments = called("", text).has_value();
      traits_.takes_object_arguments = !traits_.takes_text_arguments;
      return;
    }
    json::value arguments = traits_.takes_text_arguments ? text : json::value(object);
    traits_.loses_calls_beside_text = !shows_call(called(content(kText), arguments));
  }

  void find_argument_forms(const json::value& content_of_call, const json::object& object) {
    const auto of_text = called(content_of_call, json::value(kArguments));
    traits_.takes_text_arguments = shows_call(of_text) && has(of_text, kArguments);
    const auto of_object = called(content_of_call, object);
    traits_.takes_object_arguments =
        shows_call(of_object) && shows(of_object, {kKey, kValue}) && !has(of_object, "'qvkeyqv'");
  }

  const RenderChatFn& render_;
  TemplateTraits traits_;
  std::string_view id_ = kLongId;
  std::size_t num_without_call_ = 0;
};

}  // namespace

TemplateTraits probe_template(const RenderChatFn& render) { return Probe(render).traits(); }

}  // namespace slime::engine
