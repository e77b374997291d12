#include "text/messages/parse_record.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/field_reader.h"
#include "core/random.h"
#include "text/messages/call_ids.h"
#include "text/messages/message_parser.h"

namespace slime::text {
namespace {

constexpr int kRandomSplits = 50;

template <typename T>
T or_throw(const std::string& where, Expected<T> value) {
  if (!value) throw ConfigError(where + ": " + value.error().message);
  return *value;
}

/// The text of the first of two fields that is given.
std::optional<std::string> text_of(const FieldReader& fields, const char* name, const char* other) {
  return fields.has(name) ? fields.text(name) : fields.text(other);
}

struct ParseCase {
  std::string output;
  MessageFormat format;
  ToolSchemas tools = {};
  MessageRequest request = {};
  std::string finish = {};
};

const CallFormat* call_format_of_line(const FieldReader& fields, const std::string& where) {
  const auto name = text_of(fields, "tool_call_parser", "tool_parser");
  if (!name || name->empty() || *name == "none") return nullptr;
  if (*name != "auto") return or_throw(where, find_call_format(*name));
  return call_format_of_template(fields.required().text("chat_template").value_or(""));
}

const ReasoningFormat* reasoning_format_of_line(const FieldReader& fields,
                                                const std::string& where) {
  const auto name = fields.text("reasoning_parser");
  if (!name || name->empty() || *name == "none") return nullptr;
  if (*name != "auto") return or_throw(where, find_reasoning_format(*name));
  return reasoning_format_of_template(fields.required().text("chat_template").value_or(""));
}

/// The tools that are listed; "standard" stands for those in the line's "standard_tools".
ToolSchemas tools_of_line(const FieldReader& fields) {
  const json::value* tools = fields.find("tools");
  if (tools == nullptr) return {};
  const bool is_standard = tools->is_string() && tools->get_string() == "standard";
  return ToolSchemas(*fields.required().array(is_standard ? "standard_tools" : "tools"));
}

std::string finish_of_line(const FieldReader& fields, const std::string& where) {
  std::string finish = fields.text("finish").value_or("stop");
  if (finish != "stop" && finish != "length" && finish != "abort")
    throw ConfigError(
        fmt::format("{}: finish must be stop, length or abort, not \"{}\"", where, finish));
  return finish;
}

PromptTail tail_of_line(const FieldReader& fields, const ReasoningFormat* reasoning) {
  const auto prompt = fields.text("prompt");
  if (prompt && reasoning != nullptr) return prompt_tail(*reasoning, *prompt);
  const char* name = fields.has("thinking_open") ? "thinking_open" : "thinking_open_in_prompt";
  return fields.boolean(name).value_or(false) ? PromptTail::kReasoning : PromptTail::kMessage;
}

ParseCase read_case(const json::object& line, const std::string& where,
                    const ParseOptions& options) {
  const FieldReader fields(line, where + ": ");
  const CallFormat* calls = call_format_of_line(fields, where);
  const ReasoningFormat* reasoning = reasoning_format_of_line(fields, where);
  const char* text = fields.has("output") ? "output" : "text";
  ParseCase parsed{.output = *fields.required().text(text),
                   .format = MessageFormat(calls, reasoning, nullptr)};
  parsed.tools = tools_of_line(fields);
  parsed.finish = finish_of_line(fields, where);
  const json::value* choice = fields.find("tool_choice");
  MessageRequest& request = parsed.request;
  request.reads_calls = choice == nullptr || !choice->is_string() || choice->get_string() != "none";
  request.reads_reasoning = fields.boolean("separate_reasoning").value_or(true);
  request.parallel_calls = fields.boolean("parallel_tool_calls").value_or(true);
  request.stream_reasoning = fields.boolean("stream_reasoning").value_or(true);
  request.tail = tail_of_line(fields, reasoning);
  request.make_id = make_call_ids(calls == nullptr ? CallIds::kOpenAi : calls->ids, options.seed);
  return parsed;
}

json::object parse(const ParseCase& parsed, const std::vector<std::string_view>& pieces) {
  MessageRequest request = parsed.request;
  request.tools = &parsed.tools;
  MessageParser parser(parsed.format, std::move(request));
  Message message;
  for (const std::string_view piece : pieces) message.add(parser.feed(piece));
  message.add(parser.finish(parsed.finish == "stop" ? OutputEnd::kStop : OutputEnd::kCut));
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? json::value() : json::value(text);
  };
  json::array calls;
  for (const ToolCall& call : message.calls) {
    calls.push_back({{"id", call.id},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return {{"content", text_or_null(message.content)},
          {"reasoning_content", text_or_null(message.reasoning)},
          {"finish_reason", finish_reason(parsed.finish, calls.size())},
          {"tool_calls", std::move(calls)},
          {"tool_call_errors", parser.num_errors()}};
}

/// The places between characters.
std::vector<std::size_t> cuts_of(std::string_view text) {
  std::vector<std::size_t> cuts;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) cuts.push_back(i);
  }
  return cuts;
}

std::vector<std::string_view> split(std::string_view text, const std::vector<std::size_t>& cuts) {
  std::vector<std::string_view> pieces;
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    pieces.push_back(text.substr(begin, cut - begin));
    begin = cut;
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

void try_splits(const ParseCase& parsed, uint64_t seed, json::object& answer) {
  const std::vector<std::size_t> cuts = cuts_of(parsed.output);
  const json::object whole = answer;
  int num_splits = 0;
  answer["differs"] = nullptr;
  const auto attempt = [&](const std::vector<std::size_t>& at) {
    const auto pieces = split(parsed.output, at);
    json::object message = parse(parsed, pieces);
    ++num_splits;
    if (message == whole || !answer["differs"].is_null()) return;
    answer["differs"] = {{"pieces", json::value_from(pieces)}, {"message", std::move(message)}};
  };
  for (const std::size_t cut : cuts) attempt({cut});
  attempt(cuts);
  for (uint64_t i = 0; i < kRandomSplits; ++i) {
    std::vector<std::size_t> some;
    for (std::size_t at = 0; at < cuts.size(); ++at) {
      if (uniform(seed, i, at) < 0.3) some.push_back(cuts[at]);
    }
    attempt(some);
  }
  answer["splits"] = num_splits;
}

}  // namespace

json::object parse_record(const json::object& line, const std::string& where,
                          const ParseOptions& options) {
  const ParseCase parsed = read_case(line, where, options);
  json::object answer = parse(parsed, {parsed.output});
  if (options.tries_splits) try_splits(parsed, options.seed, answer);
  if (const json::value* id = line.if_contains("id")) answer["id"] = *id;
  return answer;
}

}  // namespace slime::text
