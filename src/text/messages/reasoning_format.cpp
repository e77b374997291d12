#include "text/messages/reasoning_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/nearest_name.h"
#include "text/messages/white_space.h"

namespace slime::text {
namespace {

constexpr auto kThinkThoughts =
    std::to_array<Mark>({{"<think>", MarkRole::kThinkOpen}, {"</think>", MarkRole::kThinkClose}});
constexpr auto kMistralThoughts =
    std::to_array<Mark>({{"[THINK]", MarkRole::kThinkOpen}, {"[/THINK]", MarkRole::kThinkClose}});
constexpr auto kKimiThoughts = std::to_array<Mark>(  // U+25C1, U+25B7
    {{"\u25c1think\u25b7", MarkRole::kThinkOpen}, {"\u25c1/think\u25b7", MarkRole::kThinkClose}});
constexpr auto kMiniMax3Thoughts = std::to_array<Mark>(
    {{"<mm:think>", MarkRole::kThinkOpen}, {"</mm:think>", MarkRole::kThinkClose}});
constexpr auto kGemmaThoughts = std::to_array<Mark>(
    {{"<|channel>", MarkRole::kThinkOpen}, {"<channel|>", MarkRole::kThinkClose}});
constexpr auto kHarmonyThoughts = std::to_array<Mark>({
    {"<|start|>", MarkRole::kMessageStart},
    {"<|channel|>", MarkRole::kChannel},
    {"<|constrain|>", MarkRole::kConstrain},
    {"<|message|>", MarkRole::kMessageText},
    {"<|end|>", MarkRole::kMessageEnd},
    {"<|return|>", MarkRole::kMessageEnd},
    {"<|call|>", MarkRole::kMessageEnd},
});

constexpr auto kReasoningFormats = std::to_array<ReasoningFormat>({
    {.name = "qwen3", .marks = kThinkThoughts},
    {.name = "mistral", .marks = kMistralThoughts},
    {.name = "kimi", .marks = kKimiThoughts},
    {.name = "minimax-m3", .marks = kMiniMax3Thoughts},
    {.name = "minimax-append-think", .marks = {}, .opening = "<think>"},
    {.name = "gemma4", .marks = kGemmaThoughts, .label = "thought"},
    {.name = "gpt-oss", .marks = kHarmonyThoughts, .is_harmony = true},
});

/// Other names: SGLang's, then vLLM's. Those of one pair of marks differ in SGLang in when thoughts
/// are taken to be open, which the prompt says here.
constexpr auto kReasoningAliases = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"deepseek-r1", "qwen3"}, {"deepseek-v3", "qwen3"}, {"deepseek-v4", "qwen3"},
    {"glm45", "qwen3"},       {"hunyuan", "qwen3"},     {"interns1", "qwen3"},
    {"kimi_k2", "qwen3"},     {"mimo", "qwen3"},        {"minimax", "qwen3"},
    {"nemotron_3", "qwen3"},  {"poolside_v1", "qwen3"}, {"qwen3-thinking", "qwen3"},
    {"step3", "qwen3"},       {"step3p5", "qwen3"},     {"telechat4", "qwen3"},
    {"deepseek_r1", "qwen3"}, {"deepseek_v3", "qwen3"}, {"glm47", "qwen3"},
    {"minimax_m2", "qwen3"},  {"olmo3", "qwen3"},       {"openai_gptoss", "gpt-oss"},
});

/// Names of SGLang whose formats are not read.
constexpr auto kUnreadReasoningFormats =
    std::to_array<std::string_view>({"apertus2509", "cohere_command4", "inkling", "kimi_k3"});

const ReasoningFormat* reasoning_format_named(std::string_view name) {
  const auto format = std::ranges::find(kReasoningFormats, name, &ReasoningFormat::name);
  return format == kReasoningFormats.end() ? nullptr : &*format;
}

}  // namespace

Expected<const ReasoningFormat*> find_reasoning_format(std::string_view name) {
  const auto alias =
      std::ranges::find(kReasoningAliases, name, &decltype(kReasoningAliases)::value_type::first);
  if (const ReasoningFormat* format =
          reasoning_format_named(alias == kReasoningAliases.end() ? name : alias->second))
    return format;
  const auto names = reasoning_format_names();
  const bool is_unread =
      std::ranges::find(kUnreadReasoningFormats, name) != kUnreadReasoningFormats.end();
  const auto near = nearest_name(name, names);
  return failure(fmt::format(
      "reasoning parser \"{}\": {}{}; there are {}", name,
      is_unread ? "SGLang's format of that name is not read" : "there is none of that name",
      near && !is_unread ? fmt::format(", did you mean {}?", *near) : "", fmt::join(names, ", ")));
}

std::vector<std::string_view> reasoning_format_names() {
  std::vector<std::string_view> names;
  for (const ReasoningFormat& format : kReasoningFormats) names.push_back(format.name);
  for (const auto& [alias, name] : kReasoningAliases) names.push_back(alias);
  std::ranges::sort(names);
  return names;
}

const ReasoningFormat* reasoning_format_of_template(std::string_view chat_template) {
  const auto has = [chat_template](std::string_view part) {
    return chat_template.find(part) != std::string_view::npos;
  };
  if (has("<|channel|>")) return reasoning_format_named("gpt-oss");
  if (has("<|channel>")) return reasoning_format_named("gemma4");
  for (const char* name : {"minimax-m3", "mistral", "kimi", "qwen3"}) {
    const ReasoningFormat* format = reasoning_format_named(name);
    if (has(format->marks.front().spelling) || has(format->marks.back().spelling)) return format;
  }
  return nullptr;
}

PromptTail prompt_tail(const ReasoningFormat& format, std::string_view prompt,
                       bool continues_message) {
  std::size_t end = 0;  // of the last mark
  const Mark* last = nullptr;
  for (const Mark& mark : format.marks) {
    const auto at = prompt.rfind(mark.spelling);
    if (at == std::string_view::npos || at + mark.spelling.size() < end) continue;
    end = at + mark.spelling.size();
    last = &mark;
  }
  if (last == nullptr) {
    const bool is_open =
        !format.opening.empty() && without_trailing_white_space(prompt).ends_with(format.opening);
    return is_open ? PromptTail::kReasoning : PromptTail::kMessage;
  }
  std::string_view rest = prompt.substr(end);
  if (last->role == MarkRole::kMessageText) {
    std::string_view header = prompt.substr(0, end - last->spelling.size());
    header = header.substr(std::min(header.size(), header.rfind("<|channel|>")));
    const bool is_open = continues_message || is_all_white_space(rest);
    if (!is_open) return PromptTail::kMessage;
    return header.starts_with("<|channel|>analysis") ? PromptTail::kReasoning
                                                     : PromptTail::kContent;
  }
  if (last->role != MarkRole::kThinkOpen) return PromptTail::kMessage;
  if (rest.starts_with(format.label)) rest.remove_prefix(format.label.size());
  const bool is_open = continues_message || is_all_white_space(rest);
  return is_open ? PromptTail::kReasoning : PromptTail::kMessage;
}

}  // namespace slime::text
