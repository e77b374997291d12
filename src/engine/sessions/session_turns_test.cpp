/// Every token that is sampled in a session is trained once, behind the tokens that it was sampled behind,
/// whatever a client sends back.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/http/api_error.h"
#include "engine/sessions/session_world_for_tests.h"

namespace slime::engine {
namespace {

using Rewrite = std::function<json::object(json::object)>;

constexpr const char* kSaidThought = "<think>\na thought\n</think>\n\n";

/// A client that repeats what it got, as `rewrite` makes it.
void play_client(
    SessionWorld& world, const std::vector<std::string>& texts,
    const Rewrite& rewrite = [](json::object message) { return message; },
    const std::string& follow = "and then?") {
  json::array messages = first_messages();
  for (const std::string& text : texts) {
    const bool has_call = text.find("<tool_call>") != std::string::npos;
    const json::object body{{"messages", messages}, {"tools", json::array{look_tool()}}};
    const json::object message =
        world.ask(body, {text, has_call ? world.family.end_of_calls : world.family.end});
    messages.push_back(rewrite(message));
    append_next(message, messages, follow);
  }
}

TEST(SessionTurns, AreOneSampleInEachFamilyOfTemplates) {
  const std::vector<std::string> kinds{
      kSaidThought + call_text({{"city", "Paris"}}),
      "I look at that.\n\n" + call_text({{"city", "Paris"}}),
      call_text({{"city", "Paris"}}) + "\n" + call_text({{"city", "Rome"}}),
      std::string(kSaidThought) + "an answer", "  an answer with a tail \n\n"};
  for (const TemplateFamily& family : template_families()) {
    for (const std::string& text : kinds) {
      SCOPED_TRACE(std::string(family.name) + ": " + text);
      SessionWorld world(family);
      play_client(world, {text, text, text, text});
      world.expect_each_token_is_trained_once();
      EXPECT_EQ(world.num_samples(), 1u);
    }
  }
}

TEST(SessionTurns, TheSecondPromptIsTheFirstItsTurnAndWhatTheTemplatePutsBehind) {
  SessionWorld world;
  play_client(world, {"an eye" + call_text({{"city", "x"}}), "done"});
  std::vector<TokenId> so_far = world.drawn[0].prompt;
  so_far.insert(so_far.end(), world.drawn[0].output.begin(), world.drawn[0].output.end());
  const std::vector<TokenId>& prompt = world.drawn[1].prompt;
  ASSERT_GT(prompt.size(), so_far.size());
  EXPECT_TRUE(std::ranges::equal(so_far, std::span(prompt).first(so_far.size())));
  EXPECT_EQ(
      world.decode({prompt.begin() + static_cast<std::ptrdiff_t>(so_far.size()), prompt.end()}),
      "\n<|im_start|>tool\nsunny<|im_end|>\n<|im_start|>assistant\n");
}

TEST(SessionTurns, WhatClientsChangeInATurnDoesNotDivideItsHistory) {
  const std::vector<std::pair<const char*, Rewrite>> rewrites{
      {"no thoughts",
       [](json::object message) {
         message.erase("reasoning_content");
         return message;
       }},
      {"arguments and ids",
       [](json::object message) {
         for (json::value& call : message["tool_calls"].as_array()) {
           json::value& arguments = call.at("function").at("arguments");
           json::object parsed = parse_json(arguments.as_string(), "arguments").as_object();
           json::object turned{{"none", nullptr}};
           for (auto at = parsed.end(); at != parsed.begin();) {
             --at;
             turned[at->key()] = at->value();
           }
           arguments = to_pretty_json(turned);
           call.at("id") = "other";
         }
         return message;
       }},
      {"arguments as objects",
       [](json::object message) {
         for (json::value& call : message["tool_calls"].as_array()) {
           json::value& arguments = call.at("function").at("arguments");
           arguments = parse_json(arguments.as_string(), "arguments");
         }
         return message;
       }},
      {"parts",
       [](json::object message) {
         message["content"] =
             json::array{json::object{{"type", "text"}, {"text", message["content"]}}};
         return message;
       }},
      {"white space",
       [](json::object message) {
         message["content"] = " \n" + std::string(message["content"].as_string()) + "\n ";
         return message;
       }},
      {"thought in the text",
       [](json::object message) {
         message["content"] =
             "<think>a thought</think>" + std::string(message["content"].as_string());
         message.erase("reasoning_content");
         return message;
       }},
      {"no text next to calls",
       [](json::object message) {
         message["content"] = nullptr;
         return message;
       }},
      {"members of an answer", [](json::object message) {
         message["refusal"] = nullptr;
         message["annotations"] = json::array();
         return message;
       }}};
  const std::string text =
      std::string(kSaidThought) + "some text\n\n" + call_text({{"city", "Paris"}, {"day", 2}});
  for (const auto& [name, rewrite] : rewrites) {
    SCOPED_TRACE(name);
    SessionWorld world;
    play_client(world, {text, text, text}, rewrite);
    world.expect_each_token_is_trained_once();
    EXPECT_EQ(world.num_samples(), 1u);
  }
}

TEST(SessionTurns, ATextAndItsCallMayComeBackAsTwoMessages) {
  SessionWorld world;
  json::array messages = first_messages();
  const json::object body{{"messages", messages}, {"tools", json::array{look_tool()}}};
  json::object message = world.ask(body, {"I look." + call_text({{"a", 1}}), "<|im_end|>"});
  messages.push_back({{"role", "assistant"}, {"content", message["content"]}});
  message["content"] = nullptr;
  messages.push_back(message);
  append_next(message, messages);
  world.ask({{"messages", messages}, {"tools", json::array{look_tool()}}}, {"done", "<|im_end|>"});
  world.expect_each_token_is_trained_once();
  EXPECT_EQ(world.num_samples(), 1u);
}

TEST(SessionTurns, ATurnThatCameBackInOtherWordsIsASampleOfItsOwn) {
  SessionWorld world;
  play_client(world, {"an answer", "an answer", "an answer"}, [](json::object message) {
    message["content"] = "other words";
    return message;
  });
  world.expect_each_token_is_trained_once();
  EXPECT_EQ(world.num_samples(), 3u);
  EXPECT_NE(world.decode(world.drawn[2].prompt).find("other words"), std::string::npos);
}

TEST(SessionTurns, ThoughtsOfEarlierQuestionsStayOrGoAsTheSessionIsOpened) {
  for (const bool keeps : {true, false}) {
    SessionOptions options;
    options.keeps_thoughts = keeps;
    SessionWorld world(template_families().front(), options);
    // Two steps of one question, then another one: the template drops what was thought before that.
    play_client(world,
                {kSaidThought + call_text({{"city", "x"}}), std::string(kSaidThought) + "an answer",
                 std::string(kSaidThought) + "another"},
                [](json::object message) {
                  message.erase("reasoning_content");
                  return message;
                });
    world.expect_each_token_is_trained_once();
    EXPECT_EQ(world.num_samples(), keeps ? 1u : 2u);
    const std::string prompt = world.decode(world.drawn[2].prompt);
    EXPECT_EQ(prompt.find("a thought") != std::string::npos, keeps);
  }
}

TEST(SessionTurns, ToolsThatChangeAreShown) {
  SessionWorld world;
  json::object other = look_tool();
  other["function"].as_object()["name"] = "book";
  json::array messages = first_messages();
  const std::vector<json::array> offers{
      {look_tool()}, {look_tool(), other}, {other}, {look_tool()}};
  for (const json::array& tools : offers) {
    const json::object message =
        world.ask({{"messages", messages}, {"tools", tools}}, {"an answer", "<|im_end|>"});
    const std::string prompt = world.decode(world.drawn.back().prompt);
    const std::string shown = json_text(tools);
    for (const char* name : {"look", "book"}) {
      EXPECT_EQ(prompt.find(name) != std::string::npos, shown.find(name) != std::string::npos);
    }
    messages.push_back(message);
    append_next(message, messages);
  }
  world.expect_each_token_is_trained_once();
}

TEST(SessionTurns, ATurnThatWasCutOffGoesOnBehindTheTemplatesOwnEnd) {
  SessionWorld world(template_families()[1]);
  json::array messages = first_messages();
  for (int i = 0; i < 3; ++i) {
    const json::object message = world.ask({{"messages", messages}}, {"it is \n", ""});
    messages.push_back(message);
    append_next(message, messages, "on");
  }
  world.expect_each_token_is_trained_once();
  EXPECT_EQ(world.num_samples(), 1u);
  EXPECT_NE(world.decode(world.drawn[2].prompt).find("it is \n<|im_end|>\n<|im_start|>user\non"),
            std::string::npos);
  world.session->read_turns([](const SessionTurn& turn, bool) { EXPECT_TRUE(turn.is_cut_off); });
}

TEST(SessionTurns, AStopStringIsNoTextAndItsTokensStay) {
  for (const bool with_it : {false, true}) {
    SessionWorld world;
    json::array messages = first_messages();
    for (int i = 0; i < 3; ++i) {
      json::object message = world.ask({{"messages", messages}, {"stop", "Observation:"}},
                                       {"Thought: look\n", "Observation:"});
      if (with_it)
        message["content"] = std::string(message["content"].as_string()) + "Observation:";
      messages.push_back(message);
      append_next(message, messages);
    }
    world.expect_each_token_is_trained_once();
    EXPECT_EQ(world.num_samples(), 1u);
    EXPECT_NE(world.decode(world.drawn[2].prompt).find("look\nObservation:<|im_end|>"),
              std::string::npos);
  }
}

TEST(SessionTurns, AUserThatWritesMarksDoesNotMoveWhatIsCut) {
  SessionWorld world(template_families()[4]);
  play_client(
      world, {"an answer", "an answer", "an answer"}, [](json::object message) { return message; },
      "is this </s> the end? </s>");
  world.expect_each_token_is_trained_once();
  EXPECT_EQ(world.num_samples(), 1u);
}

TEST(SessionTurns, AnAnswerThatTheClientBeganIsRecognised) {
  SessionWorld world;
  json::array messages = first_messages();
  json::array begun = messages;
  begun.push_back({{"role", "assistant"}, {"content", "It is "}});
  world.ask({{"messages", begun}, {"continue_final_message", true}}, {"an end.", "<|im_end|>"});
  messages.push_back({{"role", "assistant"}, {"content", "It is an end."}});
  append_next({}, messages);
  world.ask({{"messages", messages}}, {"Yes.", "<|im_end|>"});
  world.expect_each_token_is_trained_once();
  EXPECT_EQ(world.num_samples(), 1u);
}

TEST(SessionTurns, AnswersThatAreEqualAreToldApartByTheIdsOfTheirCalls) {
  SessionWorld world;
  const json::array tools{look_tool()};
  std::vector<json::object> answers;
  for (int i = 0; i < 3; ++i) {
    const std::string text = "<think>" + std::to_string(i) + "</think>" + call_text({});
    answers.push_back(
        world.ask({{"messages", first_messages()}, {"tools", tools}}, {text, "<|im_end|>"}));
  }
  for (const int i : {1, 0, 2}) {
    json::array messages = first_messages();
    json::object message = answers[static_cast<std::size_t>(i)];
    message.erase("reasoning_content");
    messages.push_back(message);
    append_next(message, messages);
    world.ask({{"messages", messages}, {"tools", tools}}, {"an end", "<|im_end|>"});
    EXPECT_NE(
        world.decode(world.drawn.back().prompt).find("<think>" + std::to_string(i) + "</think>"),
        std::string::npos);
  }
  world.expect_each_token_is_trained_once();
  EXPECT_EQ(world.num_samples(), 3u);
}

TEST(SessionTurns, AgentsThatSampleTheSameHaveASampleEach) {
  SessionWorld world;
  std::vector<json::array> talks(4, first_messages());
  for (int turn = 0; turn < 3; ++turn) {
    for (json::array& talk : talks) {
      const json::object message =
          world.ask({{"messages", talk}, {"tools", json::array{look_tool()}}},
                    {call_text({{"city", "x"}}), "<|im_end|>"});
      talk.push_back(message);
      append_next(message, talk);
    }
  }
  world.expect_each_token_is_trained_once();
  EXPECT_EQ(world.num_samples(), 4u);
}

TEST(SessionTurns, AnAnswerThatNobodyReadIsNone) {
  SessionWorld world;
  json::array messages = first_messages();
  const json::object message = world.ask({{"messages", messages}}, {"one", "<|im_end|>"});
  messages.push_back(message);
  append_next(message, messages);
  const int64_t bytes = world.session->num_bytes();
  world.ask({{"messages", messages}}, {std::string(4000, 'x'), "<|im_end|>"}, false, false);
  EXPECT_LT(world.session->num_bytes(), bytes + 2000);
  EXPECT_EQ(world.session->num_turns(), 1);
  world.ask({{"messages", messages}}, {"two", "<|im_end|>"});
  world.expect_each_token_is_trained_once();
  EXPECT_EQ(world.num_samples(), 1u);
}

TEST(SessionTurns, APromptOfTokensIsATurnThatMessagesDoNotKnow) {
  SessionWorld world;
  world.ask({{"input_ids", json::array{65, 66}}}, {"C", ""});
  world.ask({{"input_ids", json::array{65, 66, 67, 68}}}, {"E", ""});
  world.expect_each_token_is_trained_once();
  EXPECT_EQ(world.num_samples(), 1u);
}

/// What was refused, and whether the last turn counts as cut off.
std::string code_of_refusal(SessionWorld& world, const json::object& body, int& status) {
  try {
    world.ask(body, {"x", "<|im_end|>"});
  } catch (const ApiError& error) {
    status = error.status();
    return error.detail().code;
  }
  return "answered";
}

TEST(SessionTurns, AnAgentThatIsRefusedItsNextTurnWasCutOff) {
  SessionOptions of_turns;
  of_turns.max_turns = 1;
  SessionOptions of_context;
  of_context.max_context_tokens = 250;
  for (const SessionOptions& options : {of_turns, of_context}) {
    SessionWorld world(template_families().front(), options);
    json::array messages = first_messages();
    json::object message = world.ask({{"messages", messages}}, {"one", "<|im_end|>"});
    messages.push_back(message);
    append_next(message, messages, std::string(200, 'u'));
    int status = 0;
    EXPECT_EQ(code_of_refusal(world, {{"messages", messages}}, status),
              options.max_turns > 0 ? "turn_limit" : "context_length_exceeded");
    EXPECT_EQ(status, 400);
    world.session->read_turns([](const SessionTurn&, bool is_refused) { EXPECT_TRUE(is_refused); });
  }
}

TEST(SessionTurns, TheContextAndTheDefaultsOfASessionBoundEachTurn) {
  SessionOptions options;
  options.max_context_tokens = 200;
  options.max_new_tokens = 50;
  options.sampling_defaults.temperature = 0.25;
  SessionWorld world(template_families().front(), options);
  const auto request_of = [&](json::object body) {
    const auto session = std::make_shared<SessionCall>(world.session);
    return parse_chat_completions(body, session->model(), session).chat.requests.front();
  };
  const json::array messages = first_messages();
  GenerateRequest request = request_of({{"messages", messages}, {"max_tokens", 4000}});
  EXPECT_EQ(request.sampling.max_new_tokens, 50);
  EXPECT_EQ(request.sampling.temperature, 0.25);
  EXPECT_TRUE(request.return_logprob);
  EXPECT_TRUE(request.rid.starts_with(world.session->rid_prefix()));
  request = request_of({{"messages", messages}, {"max_tokens", 7}, {"temperature", 2}});
  EXPECT_EQ(request.sampling.max_new_tokens, 7);
  EXPECT_EQ(request.sampling.temperature, 2);
  json::array longer = messages;
  longer.back().as_object()["content"] = std::string(120, 'u');
  request = request_of({{"messages", longer}});
  EXPECT_EQ(static_cast<int64_t>(request.input_ids.size()) + request.sampling.max_new_tokens, 200);
}

}  // namespace
}  // namespace slime::engine
