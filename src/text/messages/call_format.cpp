#include "text/messages/call_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "core/nearest_name.h"

namespace slime::text {
namespace {

// Qwen and Hermes: JSON or XML between the same marks, whichever the model was trained on.
constexpr auto kQwenMarks = std::to_array<Mark>({
    {"<tool_call>", MarkRole::kCallOpen},
    {"</tool_call>", MarkRole::kCallClose},
    {"<function=", MarkRole::kTagOpen},
    {"</function>", MarkRole::kTagClose},
    {"<parameter=", MarkRole::kKeyOpen},
    {"</parameter>", MarkRole::kValueClose},
});
constexpr auto kGlmMarks = std::to_array<Mark>({
    {"<tool_call>", MarkRole::kCallOpen},
    {"</tool_call>", MarkRole::kCallClose},
    {"<arg_key>", MarkRole::kKeyOpen},
    {"</arg_key>", MarkRole::kKeyClose},
    {"<arg_value>", MarkRole::kValueOpen},
    {"</arg_value>", MarkRole::kValueClose},
});
constexpr auto kMiniMaxMarks = std::to_array<Mark>({
    {"<minimax:tool_call>", MarkRole::kSectionOpen},
    {"</minimax:tool_call>", MarkRole::kSectionClose},
    {"<invoke name=", MarkRole::kTagOpen},
    {"</invoke>", MarkRole::kTagClose},
    {"<parameter name=", MarkRole::kKeyOpen},
    {"</parameter>", MarkRole::kValueClose},
});
// The bars are U+FF5C, the blocks U+2581.
constexpr auto kDeepSeekXmlMarks = std::to_array<Mark>({
    {"<\uff5cDSML\uff5cfunction_calls>", MarkRole::kSectionOpen},
    {"</\uff5cDSML\uff5cfunction_calls>", MarkRole::kSectionClose},
    {"<\uff5cDSML\uff5ctool_calls>", MarkRole::kSectionOpen},
    {"</\uff5cDSML\uff5ctool_calls>", MarkRole::kSectionClose},
    {"<\uff5cDSML\uff5cinvoke name=", MarkRole::kTagOpen},
    {"</\uff5cDSML\uff5cinvoke>", MarkRole::kTagClose},
    {"<\uff5cDSML\uff5cparameter name=", MarkRole::kKeyOpen},
    {"</\uff5cDSML\uff5cparameter>", MarkRole::kValueClose},
});
constexpr auto kDeepSeekXmlTokens = std::to_array<std::string_view>({"\uff5cDSML\uff5c"});
constexpr auto kDeepSeekMarks = std::to_array<Mark>({
    {"<\uff5ctool\u2581calls\u2581begin\uff5c>", MarkRole::kSectionOpen},
    {"<\uff5ctool\u2581calls\u2581end\uff5c>", MarkRole::kSectionClose},
    {"<\uff5ctool\u2581call\u2581begin\uff5c>", MarkRole::kCallOpen},
    {"<\uff5ctool\u2581call\u2581end\uff5c>", MarkRole::kCallClose},
    {"<\uff5ctool\u2581sep\uff5c>", MarkRole::kSeparator},
    {"```json", MarkRole::kFence},
    {"```", MarkRole::kFence},
});
constexpr auto kKimiMarks = std::to_array<Mark>({
    {"<|tool_calls_section_begin|>", MarkRole::kSectionOpen},
    {"<|tool_calls_section_end|>", MarkRole::kSectionClose},
    {"<|tool_call_section_begin|>", MarkRole::kSectionOpen},
    {"<|tool_call_section_end|>", MarkRole::kSectionClose},
    {"<|tool_call_begin|>", MarkRole::kCallOpen},
    {"<|tool_call_end|>", MarkRole::kCallClose},
    {"<|tool_call_argument_begin|>", MarkRole::kSeparator},
});
constexpr auto kMistralMarks = std::to_array<Mark>({
    {"[TOOL_CALLS]", MarkRole::kCallOpen},
    {"[CALL_ID]", MarkRole::kIdOpen},
    {"[ARGS]", MarkRole::kSeparator},
});
constexpr auto kLlamaMarks = std::to_array<Mark>({{"<|python_tag|>", MarkRole::kCallOpen}});
// Gemma 3's block, and the marks of Llama 4.
constexpr auto kPythonMarks = std::to_array<Mark>({
    {"```tool_code", MarkRole::kCallOpen},
    {"```", MarkRole::kCallClose},
    {"<|python_start|>", MarkRole::kCallOpen},
    {"<|python_end|>", MarkRole::kCallClose},
});
constexpr auto kPhiMarks = std::to_array<Mark>({
    {"<|tool_call|>", MarkRole::kCallOpen},
    {"<|/tool_call|>", MarkRole::kCallClose},
    {"functools[", MarkRole::kCallOpen},
});
constexpr auto kGemmaMarks = std::to_array<Mark>({
    {"<|tool_call>", MarkRole::kCallOpen},
    {"<tool_call|>", MarkRole::kCallClose},
    {"<|\"|>", MarkRole::kQuote},
});
constexpr auto kHunyuanMarks = std::to_array<Mark>({
    {"<tool_calls>", MarkRole::kSectionOpen},
    {"</tool_calls>", MarkRole::kSectionClose},
    {"<tool_call>", MarkRole::kCallOpen},
    {"</tool_call>", MarkRole::kCallClose},
    {"<tool_sep>", MarkRole::kSeparator},
    {"<arg_key>", MarkRole::kKeyOpen},
    {"</arg_key>", MarkRole::kKeyClose},
    {"<arg_value>", MarkRole::kValueOpen},
    {"</arg_value>", MarkRole::kValueClose},
});
constexpr auto kStepMarks = std::to_array<Mark>({
    {"<\uff5ctool_calls_begin\uff5c>", MarkRole::kSectionOpen},
    {"<\uff5ctool_calls_end\uff5c>", MarkRole::kSectionClose},
    {"<\uff5ctool_call_begin\uff5c>function<\uff5ctool_sep\uff5c>", MarkRole::kCallOpen},
    {"<\uff5ctool_call_end\uff5c>", MarkRole::kCallClose},
    {"<steptml:invoke name=", MarkRole::kTagOpen},
    {"</steptml:invoke>", MarkRole::kTagClose},
    {"<steptml:parameter name=", MarkRole::kKeyOpen},
    {"</steptml:parameter>", MarkRole::kValueClose},
});
constexpr auto kStepTokens =
    std::to_array<std::string_view>({"<\uff5ctool_call_begin\uff5c>", "<\uff5ctool_sep\uff5c>"});
constexpr auto kInternMarks = std::to_array<Mark>({
    {"<|action_start|> <|plugin|>", MarkRole::kCallOpen},
    {"<|action_start|><|plugin|>", MarkRole::kCallOpen},
    {"<|action_end|>", MarkRole::kCallClose},
});
constexpr auto kInternTokens = std::to_array<std::string_view>({"<|action_start|>", "<|plugin|>"});
constexpr auto kLiquidMarks = std::to_array<Mark>({
    {"<|tool_call_start|>", MarkRole::kCallOpen},
    {"<|tool_call_end|>", MarkRole::kCallClose},
});
constexpr auto kDotsMarks = std::to_array<Mark>({
    {"<dots_function_call>", MarkRole::kSectionOpen},
    {"</dots_function_call>", MarkRole::kSectionClose},
    {"<invoke name=", MarkRole::kTagOpen},
    {"</invoke>", MarkRole::kTagClose},
    {"<parameter name=", MarkRole::kKeyOpen},
    {"</parameter>", MarkRole::kValueClose},
});
constexpr auto kHarmonyMarks = std::to_array<Mark>({
    {"<|start|>", MarkRole::kMessageStart},
    {"<|channel|>", MarkRole::kChannel},
    {"<|constrain|>", MarkRole::kConstrain},
    {"<|message|>", MarkRole::kMessageText},
    {"<|end|>", MarkRole::kMessageEnd},
    {"<|return|>", MarkRole::kMessageEnd},
    {"<|call|>", MarkRole::kMessageEnd},
});

// How each is written. NAME and IS_STRING: text/messages/call_syntax.h.
constexpr CallSyntax kQwenCalls{.begin = "<tool_call>\n{\"name\": \"NAME\", \"arguments\": ",
                                .end = "}\n</tool_call>",
                                .separator = "\n",
                                .trigger = "<tool_call>"};
constexpr CallSyntax kHermesCalls{.begin = "<tool_call>{\"name\": \"NAME\", \"arguments\": ",
                                  .end = "}</tool_call>",
                                  .separator = "\n",
                                  .trigger = "<tool_call>"};
constexpr CallSyntax kQwenXmlCalls{.begin = "<tool_call>\n<function=NAME>\n",
                                   .end = "</function>\n</tool_call>",
                                   .separator = "\n",
                                   .form = ArgumentForm::kTagged,
                                   .tags = {"<parameter=", ">\n", "\n</parameter>\n"},
                                   .trigger = "<tool_call>"};
constexpr CallSyntax kMimoCalls{.begin = "<tool_call>\n<function=NAME>\n",
                                .end = "</function>\n</tool_call>",
                                .separator = "\n",
                                .form = ArgumentForm::kTagged,
                                .tags = {"<parameter=", ">", "</parameter>\n"},
                                .trigger = "<tool_call>"};
constexpr CallSyntax kGlm45Calls{.begin = "<tool_call>NAME\n",
                                 .end = "</tool_call>",
                                 .separator = "\n",
                                 .form = ArgumentForm::kTagged,
                                 .tags = {"<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"},
                                 .trigger = "<tool_call>"};
constexpr CallSyntax kGlm47Calls{.begin = "<tool_call>NAME",
                                 .end = "</tool_call>",
                                 .form = ArgumentForm::kTagged,
                                 .tags = {"<arg_key>", "</arg_key><arg_value>", "</arg_value>"},
                                 .trigger = "<tool_call>"};
constexpr CallSyntax kMiniMaxCalls{.open = "<minimax:tool_call>\n",
                                   .begin = "<invoke name=\"NAME\">\n",
                                   .end = "</invoke>\n",
                                   .close = "</minimax:tool_call>",
                                   .form = ArgumentForm::kTagged,
                                   .tags = {"<parameter name=\"", "\">", "</parameter>\n"},
                                   .trigger = "<minimax:tool_call>"};
constexpr CallSyntax kDeepSeekXmlCalls{
    .open = "<\uff5cDSML\uff5cfunction_calls>\n",
    .begin = "<\uff5cDSML\uff5cinvoke name=\"NAME\">\n",
    .end = "</\uff5cDSML\uff5cinvoke>\n",
    .close = "</\uff5cDSML\uff5cfunction_calls>",
    .form = ArgumentForm::kTagged,
    .tags = {"<\uff5cDSML\uff5cparameter name=\"", "\" string=\"IS_STRING\">",
             "</\uff5cDSML\uff5cparameter>\n"},
    .trigger = "<\uff5cDSML\uff5cfunction_calls>"};
constexpr CallSyntax kDeepSeekFencedCalls{
    .open = "<\uff5ctool\u2581calls\u2581begin\uff5c>",
    .begin =
        "<\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>NAME\n```json\n",
    .end = "\n```<\uff5ctool\u2581call\u2581end\uff5c>",
    .separator = "\n",
    .close = "<\uff5ctool\u2581calls\u2581end\uff5c>",
    .trigger = "<\uff5ctool\u2581calls\u2581begin\uff5c>"};
constexpr CallSyntax kDeepSeekCalls{
    .open = "<\uff5ctool\u2581calls\u2581begin\uff5c>",
    .begin = "<\uff5ctool\u2581call\u2581begin\uff5c>NAME<\uff5ctool\u2581sep\uff5c>",
    .end = "<\uff5ctool\u2581call\u2581end\uff5c>",
    .close = "<\uff5ctool\u2581calls\u2581end\uff5c>",
    .trigger = "<\uff5ctool\u2581calls\u2581begin\uff5c>"};
constexpr CallSyntax kKimiCalls{.open = "<|tool_calls_section_begin|>",
                                .begin = "<|tool_call_begin|>functions.NAME:",
                                .end = "<|tool_call_end|>",
                                .close = "<|tool_calls_section_end|>",
                                .after_number = "<|tool_call_argument_begin|>",
                                .trigger = "<|tool_calls_section_begin|>"};
constexpr CallSyntax kMistralCalls{.begin = "[TOOL_CALLS]NAME[ARGS]", .trigger = "[TOOL_CALLS]"};
constexpr CallSyntax kMistralListCalls{.open = "[TOOL_CALLS] [",
                                       .begin = "{\"name\": \"NAME\", \"arguments\": ",
                                       .end = "}",
                                       .separator = ", ",
                                       .close = "]",
                                       .trigger = "[TOOL_CALLS]"};
constexpr CallSyntax kLlamaCalls{.begin = "{\"name\": \"NAME\", \"parameters\": ",
                                 .end = "}",
                                 .separator = "; ",
                                 .text_first = "[^{<\\s]"};
constexpr CallSyntax kPythonCalls{.open = "[",
                                  .begin = "NAME(",
                                  .end = ")",
                                  .separator = ", ",
                                  .close = "]",
                                  .form = ArgumentForm::kPython,
                                  .text_first = "[^\\[`<\\s]"};
constexpr CallSyntax kPhiCalls{.open = "<|tool_call|>[",
                               .begin = "{\"name\": \"NAME\", \"arguments\": ",
                               .end = "}",
                               .separator = ", ",
                               .close = "]<|/tool_call|>",
                               .trigger = "<|tool_call|>"};
constexpr CallSyntax kGemmaCalls{.begin = "<|tool_call>call:NAME{",
                                 .end = "}<tool_call|>",
                                 .form = ArgumentForm::kGemma,
                                 .trigger = "<|tool_call>"};
constexpr CallSyntax kHunyuanCalls{
    .open = "<tool_calls>\n",
    .begin = "<tool_call>NAME<tool_sep>\n",
    .end = "</tool_call>\n",
    .close = "</tool_calls>",
    .form = ArgumentForm::kTagged,
    .tags = {"<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"},
    .trigger = "<tool_calls>"};
constexpr CallSyntax kStepCalls{
    .open = "<\uff5ctool_calls_begin\uff5c>\n",
    .begin =
        "<\uff5ctool_call_begin\uff5c>function<\uff5ctool_sep\uff5c><steptml:invoke "
        "name=\"NAME\">\n",
    .end = "</steptml:invoke><\uff5ctool_call_end\uff5c>\n",
    .close = "<\uff5ctool_calls_end\uff5c>",
    .form = ArgumentForm::kTagged,
    .tags = {"<steptml:parameter name=\"", "\">", "</steptml:parameter>\n"},
    .trigger = "<\uff5ctool_calls_begin\uff5c>"};
constexpr CallSyntax kInternCalls{
    .begin = "<|action_start|><|plugin|>\n{\"name\": \"NAME\", \"parameters\": ",
    .end = "}<|action_end|>",
    .separator = "\n",
    .trigger = "<|action_start|>"};
constexpr CallSyntax kLiquidCalls{.open = "<|tool_call_start|>[",
                                  .begin = "NAME(",
                                  .end = ")",
                                  .separator = ", ",
                                  .close = "]<|tool_call_end|>",
                                  .form = ArgumentForm::kPython,
                                  .trigger = "<|tool_call_start|>"};
constexpr CallSyntax kDotsCalls{.open = "<dots_function_call>\n",
                                .begin = "<invoke name=\"NAME\">\n",
                                .end = "</invoke>\n",
                                .close = "</dots_function_call>",
                                .form = ArgumentForm::kTagged,
                                .tags = {"<parameter name=\"", "\">", "</parameter>\n"},
                                .trigger = "<dots_function_call>"};
// The token <|call|>, which ends the response, follows.
constexpr CallSyntax kHarmonyCalls{
    .begin = "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>",
    .trigger = "<|channel|>commentary to=",
    .has_one_call = true};

constexpr auto kCallFormats = std::to_array<CallFormat>({
    {.name = "qwen25",
     .marks = kQwenMarks,
     .has_newlines_around_values = true,
     .written = kQwenCalls},
    {.name = "hermes",
     .marks = kQwenMarks,
     .has_newlines_around_values = true,
     .written = kHermesCalls},
    {.name = "qwen3_coder",
     .marks = kQwenMarks,
     .has_newlines_around_values = true,
     .written = kQwenXmlCalls},
    {.name = "mimo", .marks = kQwenMarks, .written = kMimoCalls},
    {.name = "glm45", .marks = kGlmMarks, .header = CallHeader::kLine, .written = kGlm45Calls},
    {.name = "glm47", .marks = kGlmMarks, .header = CallHeader::kLine, .written = kGlm47Calls},
    {.name = "minimax-m2", .marks = kMiniMaxMarks, .written = kMiniMaxCalls},
    {.name = "deepseekv32",
     .marks = kDeepSeekXmlMarks,
     .inner_tokens = kDeepSeekXmlTokens,
     .written = kDeepSeekXmlCalls},
    {.name = "deepseekv3",
     .marks = kDeepSeekMarks,
     .header = CallHeader::kSeparated,
     .written = kDeepSeekFencedCalls},
    {.name = "deepseekv31",
     .marks = std::span(kDeepSeekMarks).first(5),
     .header = CallHeader::kSeparated,
     .written = kDeepSeekCalls},
    {.name = "kimi_k2",
     .marks = kKimiMarks,
     .header = CallHeader::kSeparated,
     .ids = CallIds::kKimi,
     .written = kKimiCalls},
    {.name = "mistral",
     .marks = kMistralMarks,
     .header = CallHeader::kSeparated,
     .ids = CallIds::kMistral,
     .has_id_in_object = true,
     .written = kMistralCalls,
     .written_without_separator = kMistralListCalls},
    {.name = "llama3", .marks = kLlamaMarks, .reads_bare_json = true, .written = kLlamaCalls},
    {.name = "pythonic",
     .marks = kPythonMarks,
     .header = CallHeader::kPython,
     .reads_json = false,
     .reads_bare_python = true,
     .written = kPythonCalls},
    {.name = "phi4", .marks = kPhiMarks, .written = kPhiCalls},
    {.name = "gemma4", .marks = kGemmaMarks, .header = CallHeader::kBraced, .written = kGemmaCalls},
    {.name = "hunyuan",
     .marks = kHunyuanMarks,
     .header = CallHeader::kLine,
     .written = kHunyuanCalls},
    {.name = "step3", .marks = kStepMarks, .inner_tokens = kStepTokens, .written = kStepCalls},
    {.name = "interns1",
     .marks = kInternMarks,
     .inner_tokens = kInternTokens,
     .written = kInternCalls},
    {.name = "lfm2", .marks = kLiquidMarks, .header = CallHeader::kPython, .written = kLiquidCalls},
    {.name = "dots", .marks = kDotsMarks, .written = kDotsCalls},
    {.name = "gpt-oss", .marks = kHarmonyMarks, .is_harmony = true, .written = kHarmonyCalls},
});

/// Other names of the formats: SGLang's, then vLLM's.
constexpr auto kCallAliases = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"deepseekv4", "deepseekv32"},
    {"glm", "glm45"},
    {"poolside_v1", "glm45"},
    {"qwen", "qwen25"},
    {"step3p5", "qwen3_coder"},
    {"trinity", "qwen25"},
    {"deepseek_v3", "deepseekv3"},
    {"deepseek_v31", "deepseekv31"},
    {"deepseek_v32", "deepseekv32"},
    {"llama3_json", "llama3"},
    {"minimax_m2", "minimax-m2"},
    {"olmo3", "pythonic"},
    {"openai", "gpt-oss"},
    {"phi4_mini_json", "phi4"},
    {"qwen3_json", "qwen25"},
    {"qwen3_xml", "qwen3_coder"},
});

/// Names of SGLang whose formats are not read.
constexpr auto kUnreadCallFormats = std::to_array<std::string_view>(
    {"apertus2509", "cohere_command4", "gigachat3", "gigachat35", "inkling", "k2_horizon",
     "kimi_k3", "ling3", "minicpm5", "minimax-m3", "muse", "spark25"});

const CallFormat* call_format_named(std::string_view name) {
  const auto format = std::ranges::find(kCallFormats, name, &CallFormat::name);
  return format == kCallFormats.end() ? nullptr : &*format;
}

}  // namespace

std::span<const CallFormat> call_formats() { return kCallFormats; }

Expected<const CallFormat*> find_call_format(std::string_view name) {
  const auto alias =
      std::ranges::find(kCallAliases, name, &decltype(kCallAliases)::value_type::first);
  if (const CallFormat* format =
          call_format_named(alias == kCallAliases.end() ? name : alias->second))
    return format;
  const auto names = call_format_names();
  const bool is_unread = std::ranges::find(kUnreadCallFormats, name) != kUnreadCallFormats.end();
  const auto near = nearest_name(name, names);
  return failure(fmt::format(
      "tool-call parser \"{}\": {}{}; there are {}", name,
      is_unread ? "SGLang's format of that name is not read" : "there is none of that name",
      near && !is_unread ? fmt::format(", did you mean {}?", *near) : "", fmt::join(names, ", ")));
}

std::vector<std::string_view> call_format_names() {
  std::vector<std::string_view> names;
  for (const CallFormat& format : kCallFormats) names.push_back(format.name);
  for (const auto& [alias, name] : kCallAliases) names.push_back(alias);
  std::ranges::sort(names);
  return names;
}

const CallFormat* call_format_of_template(std::string_view chat_template) {
  const auto has = [chat_template](std::string_view part) {
    return chat_template.find(part) != std::string_view::npos;
  };
  // The first one that a template has counts: marks of later ones may be in it too.
  if (has("\uff5cDSML\uff5c")) return call_format_named("deepseekv32");
  if (has("<arg_key>"))
    return call_format_named(has("\n<arg_key>") || has("\\n<arg_key>") ? "glm45" : "glm47");
  if (has("<function=")) return call_format_named("qwen3_coder");
  if (has("<minimax:tool_call>")) return call_format_named("minimax-m2");
  if (has("<|tool_calls_section_begin|>")) return call_format_named("kimi_k2");
  if (has("tool\u2581sep")) return call_format_named(has("```") ? "deepseekv3" : "deepseekv31");
  if (has("[TOOL_CALLS]")) return call_format_named("mistral");
  if (has("<|channel|>")) return call_format_named("gpt-oss");
  if (has("<|tool_call>")) return call_format_named("gemma4");
  if (has("<|tool_call|>")) return call_format_named("phi4");
  if (has("<tool_call>")) return call_format_named("qwen25");
  if (has("<|python_tag|>") || has("\"parameters\": dictionary of argument name"))
    return call_format_named("llama3");
  return nullptr;
}

}  // namespace slime::text
