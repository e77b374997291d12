// Bytes as the messages, tools and choice of a chat request: what templates of each kind are given has
// roles and texts, or there is a list of problems. The text of a custom tool's call is the same at
// any split.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "engine/chat/chat_request.h"
#include "engine/chat/custom_input.h"
#include "engine/chat/messages.h"
#include "engine/chat/tools.h"

namespace {

using namespace slime;
using namespace slime::engine;

/// One for each combination of three traits, and ids of each form.
TemplateTraits traits_of(std::uint8_t bits) {
  TemplateTraits traits;
  traits.takes_text_arguments = (bits & 1) != 0;
  traits.takes_object_arguments = (bits & 2) != 0;
  traits.wants_null_beside_calls = traits.loses_calls_beside_text = (bits & 4) != 0;
  traits.call_ids = static_cast<CallIdForm>((bits >> 3) % 3);
  traits.takes_parts = (bits & 32) != 0;
  traits.takes_text = (bits & 64) != 0;
  traits.knows_developer = traits.takes_later_system = (bits & 128) != 0;
  traits.takes_system = (bits & 96) != 96;
  return traits;
}

void read_chat(const json::object& body, const TemplateTraits& traits) {
  std::vector<std::string> problems;
  ChatRequest request;
  if (const json::value* tools = body.if_contains("tools"); tools && tools->is_array())
    request.tools = tools->get_array();
  if (const json::value* choice = body.if_contains("tool_choice"))
    request.tool_choice = read_tool_choice(*choice, problems);
  static_cast<void>(checked_tools(request, problems));
  problems.clear();
  const json::value* messages = body.if_contains("messages");
  if (messages == nullptr || !messages->is_array()) return;
  const json::array out = normalised_messages(messages->get_array(), traits, problems);
  if (!problems.empty()) return;
  for (const json::value& message : out) {
    const json::object& object = message.as_object();
    if (!object.at("role").is_string() || !object.contains("content")) std::abort();
  }
}

void read_custom_input(std::string_view text) {
  CustomInput whole, split;
  std::string one = whole.add(text);
  one += whole.finish();
  std::string other;
  for (const char& byte : text) other += split.add({&byte, 1});
  other += split.finish();
  if (one != other) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  read_custom_input(text);
  const auto body = try_parse_json(text);
  if (body && body->is_object()) read_chat(body->get_object(), traits_of(data[0]));
  return 0;
}
