#include "text/messages/call_grammar.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "text/messages/argument_grammar.h"
#include "text/messages/tag_format.h"

namespace slime::text {
namespace {

constexpr std::string_view kHarmonyThoughts = "<|channel|>analysis<|message|>";
constexpr std::string_view kHarmonyNext = "<|end|><|start|>assistant";
constexpr std::string_view kHarmonyAnswer = "<|channel|>final<|message|>";

json::object whole_tag(json::object format) {
  return {{"type", "structural_tag"}, {"format", std::move(format)}};
}

/// `text` with the name in it, as JSON writes it where it stands in quotes.
std::string with_name(std::string_view text, const std::string& name) {
  constexpr std::string_view kName = "NAME";
  std::string out(text);
  const auto at = out.find(kName);
  if (at == std::string::npos) return out;
  const bool is_json = at > 0 && out[at - 1] == '"';
  const std::string quoted = json_text(std::string_view(name));
  out.replace(at, kName.size(), is_json ? quoted.substr(1, quoted.size() - 2) : name);
  return out;
}

json::object tag_of_call(const CallGrammar& calls, const json::object& function) {
  const CallSyntax& syntax = *calls.syntax;
  const json::value* strict = function.if_contains("strict");
  const bool is_strict = strict != nullptr && strict->is_bool() && strict->get_bool();
  const bool is_bound = is_strict || !calls.binds_strict_alone;
  json::object arguments = argument_grammar(syntax, function, is_bound);
  if (!syntax.after_number.empty()) {
    const json::object number = format_of_regex("[0-9]{1,6}");
    arguments = format_of_row({number, format_of_text(syntax.after_number), std::move(arguments)});
  }
  const std::string name(function.at("name").as_string());
  return format_of_tag(with_name(syntax.begin, name), std::move(arguments), syntax.end);
}

json::array tags_of_calls(const CallGrammar& calls) {
  json::array tags;
  for (const json::value& tool : *calls.tools)
    tags.push_back(tag_of_call(calls, tool.as_object().at("function").as_object()));
  return tags;
}

json::object row_of_calls(const CallGrammar& calls) {
  const bool has_one = !calls.parallel || calls.syntax->has_one_call;
  return {{"type", "tags_with_separator"},
          {"tags", tags_of_calls(calls)},
          {"separator", calls.syntax->separator},
          {"at_least_one", true},
          {"stop_after_first", has_one}};
}

json::object all_calls(const CallGrammar& calls) {
  json::array elements;
  if (!calls.syntax->open.empty()) elements.push_back(format_of_text(calls.syntax->open));
  elements.push_back(row_of_calls(calls));
  if (!calls.syntax->close.empty()) elements.push_back(format_of_text(calls.syntax->close));
  return format_of_row(std::move(elements));
}

/// Harmony's thoughts are a message in front.
json::object behind_thoughts(bool is_harmony, json::object format) {
  if (!is_harmony) return format;
  const json::object thoughts = format_of_tag(kHarmonyThoughts, format_of_any_text(), kHarmonyNext);
  return format_of_row({format_of_repetition("optional", thoughts), std::move(format)});
}

json::object framed_answer(bool is_harmony, const json::object& format) {
  return is_harmony ? format_of_row({format_of_text(kHarmonyAnswer), format}) : format;
}

}  // namespace

json::object forced_calls(const CallGrammar& calls) {
  return whole_tag(behind_thoughts(calls.is_harmony, all_calls(calls)));
}

json::object calls_or(const CallGrammar& calls, const json::object& format) {
  json::object answer = framed_answer(calls.is_harmony, format);
  return whole_tag(
      behind_thoughts(calls.is_harmony, format_of_choice({all_calls(calls), std::move(answer)})));
}

json::object harmony_answer(const json::object& format) {
  return whole_tag(behind_thoughts(true, framed_answer(true, format)));
}

json::object bound_calls(const CallGrammar& calls) {
  const CallSyntax& syntax = *calls.syntax;
  if (syntax.trigger.empty()) {
    json::object text = format_of_any_text();
    const json::object first = format_of_regex(syntax.text_first);
    json::object answer = format_of_row({first, std::move(text)});
    return whole_tag(format_of_choice({all_calls(calls), std::move(answer)}));
  }
  json::array tags;
  if (syntax.open.starts_with(syntax.trigger)) {
    tags.push_back(format_of_tag(syntax.open, row_of_calls(calls), syntax.close));
  } else {
    tags = tags_of_calls(calls);
  }
  return whole_tag({{"type", "triggered_tags"},
                    {"triggers", json::array{syntax.trigger}},
                    {"tags", std::move(tags)},
                    {"at_least_one", false},
                    {"stop_after_first", !calls.parallel}});
}

}  // namespace slime::text
