// Bytes as a model's output in every format: any split gives the same message, and its parts are not
// longer than the output allows.
//   build/fuzz/message_parser_fuzz -max_len=4096

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "text/messages/call_ids.h"
#include "text/messages/message_parser.h"

namespace {

using namespace slime;
using namespace slime::text;

const ToolSchemas& tools() {
  static const ToolSchemas schemas(
      parse_json(R"([{"name": "f", "parameters": {"properties": {"a": {"type": "string"},
                     "b": {"type": "integer"}, "c": {"type": ["object", "null"]}}}},
                     {"name": "get_weather"}])",
                 "tools")
          .as_array());
  return schemas;
}

/// Every format of calls with every one of thoughts, and without.
const std::vector<MessageFormat>& formats() {
  static const std::vector<MessageFormat> all = [] {
    std::vector<MessageFormat> formats;
    for (const CallFormat& calls : call_formats()) {
      for (const char* name : {"qwen3", "mistral", "gemma4", "gpt-oss"})
        formats.emplace_back(&calls, *find_reasoning_format(name), nullptr);
      formats.emplace_back(&calls, nullptr, nullptr);
    }
    return formats;
  }();
  return all;
}

struct Parsed {
  Message message;
  int errors = 0;
};

Parsed parse(const MessageFormat& format, uint8_t how, std::string_view output,
             const std::vector<std::size_t>& cuts) {
  MessageParser parser(format,
                       {.tools = &tools(),
                        .parallel_calls = (how & 1) == 0,
                        .stream_reasoning = (how & 2) == 0,
                        .tail = (how & 4) == 0 ? PromptTail::kMessage : PromptTail::kReasoning,
                        .make_id = make_call_ids(format.calls()->ids, 1)});
  Parsed parsed;
  const auto add = [&](const std::vector<MessageEvent>& events) {
    for (const MessageEvent& event : events) {
      if (event.tokens.first > event.tokens.last || event.tokens.last > cuts.size() + 1)
        std::abort();
    }
    parsed.message.add(events);
  };
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    add(parser.feed(output.substr(begin, cut - begin)));
    begin = cut;
  }
  add(parser.feed(output.substr(begin)));
  add(parser.finish((how & 8) == 0 ? OutputEnd::kStop : OutputEnd::kCut));
  parsed.errors = parser.num_errors();
  return parsed;
}

bool is_same(const Parsed& a, const Parsed& b) {
  const auto is_same_call = [](const ToolCall& one, const ToolCall& other) {
    return one.id == other.id && one.name == other.name && one.arguments == other.arguments;
  };
  return a.errors == b.errors && a.message.content == b.message.content &&
         a.message.reasoning == b.message.reasoning &&
         std::ranges::equal(a.message.calls, b.message.calls, is_same_call);
}

}  // namespace

/// The first byte chooses the format, the second options, the third where the output is split.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const MessageFormat& format = formats()[data[0] % formats().size()];
  const std::string_view output(reinterpret_cast<const char*>(data) + 3, size - 3);
  const Parsed whole = parse(format, data[1], output, {});
  if (whole.message.calls.size() > static_cast<std::size_t>(kMostCalls)) std::abort();
  std::vector<std::size_t> every, some;
  uint32_t state = data[2];
  for (std::size_t at = 1; at < output.size(); ++at) {
    every.push_back(at);
    state = state * 1664525 + 1013904223;
    if (state >> 30 == 0) some.push_back(at);
  }
  for (const auto& cuts : {every, some, {output.size() * data[2] / 256}}) {
    if (!is_same(whole, parse(format, data[1], output, cuts))) std::abort();
  }
  return 0;
}
