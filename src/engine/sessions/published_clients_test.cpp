/// What published agent frameworks send back (tests/fixtures/agent_requests) is recognised as what was
/// sampled.

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "engine/sessions/session_world_for_tests.h"

namespace slime::engine {
namespace {

/// What a model may have sampled for the message that the client shows: a thought and a text more than it
/// keeps.
std::string sampled_for(const json::object& message) {
  std::string text, calls;
  const auto add_call = [&](const json::value& name, const json::value& arguments) {
    calls += "<tool_call>\n" + json_text(json::object{{"name", name}, {"arguments", arguments}}) +
             "\n</tool_call>";
  };
  const json::value* content = message.if_contains("content");
  const json::array* blocks = content == nullptr ? nullptr : content->if_array();
  if (content != nullptr && content->is_string()) text = content->get_string();
  for (const json::value& block : blocks == nullptr ? json::array() : *blocks) {
    if (block.at("type") == "text") text += block.at("text").as_string();
    if (block.at("type") == "tool_use") add_call(block.at("name"), block.at("input"));
  }
  if (const json::value* list = message.if_contains("tool_calls"); list && list->is_array()) {
    for (const json::value& call : list->get_array()) {
      const json::value& function = call.at("function");
      add_call(function.at("name"), parse_json(function.at("arguments").as_string(), "arguments"));
    }
  }
  if (!calls.empty() && text.find_first_not_of(" \n") == std::string::npos && blocks == nullptr)
    text = "I look at that.\n";
  return "<think>\na thought\n</think>\n\n" + text + calls;
}

json::object with_limit(json::object body) {
  body["max_tokens"] = 100;
  return body;
}

TEST(PublishedClients, GoOnInTheirSecondRequestFromWhatWasSampled) {
  std::ifstream file(SLIME_SOURCE_DIR "/tests/fixtures/agent_requests/clients.jsonl");
  int num_clients = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;
    const json::object client = parse_json(line, "client").as_object();
    const std::string name(client.at("client").as_string());
    SCOPED_TRACE(name);
    const bool is_anthropic = client.at("protocol") == "anthropic";
    const json::object& first = client.at("first").as_object();
    const json::object& second = client.at("second").as_object();
    const std::size_t place = first.at("messages").as_array().size();
    const json::value& said = second.at("messages").as_array()[place];
    SessionWorld world;
    world.ask(with_limit(first), {sampled_for(said.as_object()), "<|im_end|>"}, is_anthropic);
    world.ask(with_limit(second), {"an end", "<|im_end|>"}, is_anthropic);
    world.expect_each_token_is_trained_once();
    // The system's message of this one tells the number of the step.
    const bool is_new_prompt = name == "pydantic_ai_dynamic_instructions_think";
    EXPECT_EQ(world.num_samples(), is_new_prompt ? 2u : 1u);
    ++num_clients;
  }
  EXPECT_GE(num_clients, 20);
}

}  // namespace
}  // namespace slime::engine
