#include "engine/http/responses/responses_writer.h"

#include <gtest/gtest.h>

#include "engine/http/responses/reasoning_envelope.h"

namespace slime::engine {
namespace {

using Event = text::MessageEvent;
using Kind = Event::Kind;

Event reasoning(std::string text) { return {.kind = Kind::kReasoning, .text = std::move(text)}; }
Event content(std::string text) { return {.kind = Kind::kContent, .text = std::move(text)}; }
Event call(int index, std::string name) {
  return {.kind = Kind::kCall, .call = index, .id = "call_1", .name = std::move(name)};
}
Event arguments(int index, std::string text) {
  return {.kind = Kind::kArguments, .call = index, .text = std::move(text)};
}
Event call_end(int index) { return {.kind = Kind::kCallEnd, .call = index}; }

ResponsesTools tools_of(const char* tools) {
  const json::object body = parse_json(tools, "tools").get_object();
  std::vector<std::string> warnings;
  return ResponsesTools::read(FieldReader(body, ""), warnings);
}

/// A stream and the whole answer of the same events, each event on its own. Checks what every stream
/// keeps: numbers without gaps, items that open and close in order, and that they are the output.
struct Answer {
  Answer(std::vector<Event> events, const ResponsesTools& tools, ResponsesForm form = {},
         ResponsesEnd end = {}) {
    form.id = "x";
    form.echo = {{"model", "m"}};
    form.streams = true;
    ResponsesWriter writer(form, tools, {});
    keep(writer.begin());
    for (const Event& event : events) keep(writer.add({&event, 1}));
    keep(writer.finish(end));
    whole = writer.response();
    form.streams = false;
    ResponsesWriter silent(form, tools, {});
    EXPECT_TRUE(silent.add(events).empty());
    EXPECT_TRUE(silent.finish(end).empty());
    EXPECT_EQ(silent.response().at("output"), whole.at("output"));
    check();
  }

  void keep(std::vector<ServerEvent> more) {
    for (const ServerEvent& event : more) {
      stream.push_back(parse_json(event.data, "event").get_object());
      EXPECT_EQ(stream.back().at("type").get_string(), event.name);
    }
  }
  void check() const {
    json::array items;
    std::int64_t num_added = 0;
    for (std::size_t i = 0; i < stream.size(); ++i) {
      EXPECT_EQ(stream[i].at("sequence_number"), static_cast<std::int64_t>(i));
      if (stream[i].at("type") == "response.output_item.added") {
        EXPECT_EQ(stream[i].at("output_index"), num_added++);
      }
      if (stream[i].at("type") != "response.output_item.done") continue;
      EXPECT_EQ(stream[i].at("output_index"), static_cast<std::int64_t>(items.size()));
      EXPECT_EQ(num_added, static_cast<std::int64_t>(items.size()) + 1);
      items.push_back(stream[i].at("item"));
    }
    EXPECT_EQ(stream.front().at("type"), "response.created");
    EXPECT_EQ(stream.back().at("response"), json::value(whole));
    EXPECT_EQ(whole.at("output"), json::value(items));
  }
  std::string deltas(std::string_view type) const {
    std::string text;
    for (const json::object& event : stream) {
      if (event.at("type").get_string() == type) text += event.at("delta").get_string();
    }
    return text;
  }
  std::vector<std::string> types() const {
    std::vector<std::string> names;
    for (const json::object& event : stream) names.emplace_back(event.at("type").get_string());
    return names;
  }
  const json::value& at(std::string_view pointer) {
    value = json::value(whole);
    return value.at_pointer(pointer);
  }

  std::vector<json::object> stream;
  json::object whole;
  json::value value;
};

TEST(ResponsesWriter, TextIsAMessageItemWithOnePart) {
  Answer answer({content("All "), content("done.")}, {});
  EXPECT_EQ(answer.types(),
            (std::vector<std::string>{"response.created", "response.in_progress",
                                      "response.output_item.added", "response.content_part.added",
                                      "response.output_text.delta", "response.output_text.delta",
                                      "response.output_text.done", "response.content_part.done",
                                      "response.output_item.done", "response.completed"}));
  EXPECT_EQ(answer.deltas("response.output_text.delta"), "All done.");
  EXPECT_EQ(json::value(answer.at("/output/0")), parse_json(R"({"id":"msg_x_0","type":"message",
      "status":"completed","role":"assistant","content":[{"type":"output_text","text":"All done.",
      "annotations":[]}]})",
                                                            "expected"));
  EXPECT_EQ(answer.at("/model"), "m");
  EXPECT_EQ(answer.at("/id"), "resp_x");
}

TEST(ResponsesWriter, ThoughtsAreAnItemOfTheirOwnThatCanComeBack) {
  Answer answer({reasoning("Hm"), reasoning("."), content("Yes")}, {}, {.packs_reasoning = true});
  EXPECT_EQ(answer.deltas("response.reasoning_text.delta"), "Hm.");
  EXPECT_EQ(answer.at("/output/0/content/0/text"), "Hm.");
  EXPECT_EQ(answer.at("/output/1/type"), "message");
  const json::string packed = answer.at("/output/0/encrypted_content").get_string();
  EXPECT_EQ(unpack_reasoning(packed), "Hm.");
}

TEST(ResponsesWriter, AskedForASummaryItShowsTheThoughtsAsOne) {
  Answer answer({reasoning("Hm.")}, {}, {.summarises_reasoning = true});
  EXPECT_EQ(answer.deltas("response.reasoning_summary_text.delta"), "Hm.");
  EXPECT_EQ(answer.deltas("response.reasoning_text.delta"), "");
  EXPECT_EQ(answer.at("/output/0/summary/0"),
            parse_json(R"({"type":"summary_text","text":"Hm."})", "expected"));
}

TEST(ResponsesWriter, AFunctionCallStreamsItsArguments) {
  const auto tools = tools_of(R"({"tools":[{"type":"function","name":"f"}]})");
  Answer answer({call(0, "f"), arguments(0, "{\"a\""), arguments(0, ": 1}"), call_end(0)}, tools);
  EXPECT_EQ(answer.deltas("response.function_call_arguments.delta"), "{\"a\": 1}");
  EXPECT_EQ(answer.at("/output/0"), parse_json(R"({"id":"fc_x_0","type":"function_call",
      "status":"completed","call_id":"call_1","name":"f","arguments":"{\"a\": 1}"})",
                                               "expected"));
}

TEST(ResponsesWriter, ACustomCallStreamsItsTextWithoutJson) {
  const auto tools = tools_of(R"({"tools":[{"type":"custom","name":"patch"}]})");
  Answer answer({call(0, "patch"), arguments(0, R"({"input": "a \)"), arguments(0, R"("b\"\n"})"),
                 call_end(0)},
                tools);
  EXPECT_EQ(answer.deltas("response.custom_tool_call_input.delta"), "a \"b\"\n");
  EXPECT_EQ(answer.at("/output/0/type"), "custom_tool_call");
  EXPECT_EQ(answer.at("/output/0/input"), "a \"b\"\n");
}

TEST(ResponsesWriter, ACallOfANamespaceIsGivenBackAsTheClientNamedIt) {
  const auto tools = tools_of(R"({"tools":[{"type":"namespace","name":"files","tools":[
      {"type":"function","name":"read"}]}]})");
  for (const char* written : {"files__read", "files.read"}) {
    Answer answer({call(0, written), arguments(0, "{}"), call_end(0)}, tools);
    EXPECT_EQ(answer.at("/output/0/name"), "read");
    EXPECT_EQ(answer.at("/output/0/namespace"), "files");
  }
  Answer unknown({call(0, "other"), arguments(0, "{}"), call_end(0)}, tools);
  EXPECT_EQ(unknown.at("/output/0/name"), "other");
  EXPECT_FALSE(unknown.at("/output/0").get_object().contains("namespace"));
}

TEST(ResponsesWriter, ACallOfTheLocalShellIsAnItemOfItsType) {
  const auto tools = tools_of(R"({"tools":[{"type":"local_shell"}]})");
  Answer answer({call(0, "local_shell"), arguments(0, R"({"command":["ls"]})"), call_end(0)},
                tools);
  EXPECT_EQ(answer.at("/output/0"), parse_json(R"({"id":"fc_x_0","type":"local_shell_call",
      "status":"completed","call_id":"call_1","action":{"command":["ls"],"type":"exec","env":{}}})",
                                               "expected"));
  Answer broken({call(0, "local_shell"), arguments(0, "ls"), call_end(0)}, tools);
  EXPECT_EQ(broken.at("/output/0/type"), "function_call");
  EXPECT_EQ(broken.at("/output/0/arguments"), "ls");
}

TEST(ResponsesWriter, ACutAnswerSaysWhyAndKeepsWhatThereIs) {
  Answer answer({content("A sent")}, {}, {}, {.outcome = ResponsesEnd::Outcome::kCutByLength});
  EXPECT_EQ(answer.stream.back().at("type"), "response.incomplete");
  EXPECT_EQ(answer.at("/incomplete_details/reason"), "max_output_tokens");
  EXPECT_EQ(answer.at("/output/0/status"), "incomplete");
  EXPECT_EQ(answer.at("/output/0/content/0/text"), "A sent");
  Answer failed({}, {}, {},
                {.outcome = ResponsesEnd::Outcome::kFailed,
                 .error_code = "server_error",
                 .error_message = "no memory"});
  EXPECT_EQ(failed.stream.back().at("type"), "response.failed");
  EXPECT_EQ(failed.at("/error/code"), "server_error");
  EXPECT_TRUE(failed.at("/output").get_array().empty());
}

TEST(ResponsesWriter, AnAnswerWithoutTextHasAMessageWithoutText) {
  Answer answer({}, {});
  EXPECT_EQ(answer.at("/output/0/content/0/text"), "");
}

}  // namespace
}  // namespace slime::engine
