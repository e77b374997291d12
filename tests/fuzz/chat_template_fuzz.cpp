// Any bytes as a template over a small conversation: no crash, no leak, no endless run; the pieces of
// its trace cover the text.
//   cmake --preset fuzz && cmake --build --preset fuzz --target chat_template_fuzz
//   build/fuzz/chat_template_fuzz -max_len=4096 -timeout=5 -dict=tests/fuzz/chat_template.dict

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/json.h"
#include "text/jinja/template.h"

namespace {

using namespace slime::text::jinja;

const Variables& conversation() {
  static const Variables kVariables = {
      {"messages",
       from_json(slime::parse_json(
           R"([{"role": "user", "content": "Hi \u00e9"}, {"role": "assistant", "content": null,
                          "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, true]}}}]}])",
           "conversation"))},
      {"tools", None{}},
      {"add_generation_prompt", true},
      {"bos_token", "<s>"},
  };
  return kVariables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const Limits limits{.steps = 20'000, .bytes = 4 << 20, .output_bytes = 1 << 20, .depth = 300};
  try {
    const Template program = Template::parse({reinterpret_cast<const char*>(data), size});
    Trace trace;
    for (const Value& message : conversation().front().second.if_sequence()->items)
      trace.subjects.push_back(message.if_dict());
    const auto text =
        program.render(conversation(), {.limits = limits, .now = {}, .trace = &trace});
    std::size_t at = 0;
    for (const Trace::Piece& piece : trace.pieces) {
      if (piece.begin != at || piece.end <= piece.begin) std::abort();
      at = piece.end;
    }
    if (text && at != text->size()) std::abort();
  } catch (const SyntaxError&) {
  }
  return 0;
}
