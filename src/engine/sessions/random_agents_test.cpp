/// Random agents over random histories: no client makes a sampled token untrained, or trained twice.

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "engine/sessions/session_world_for_tests.h"

namespace slime::engine {
namespace {

/// A client that rewrites, branches, compacts, and changes its tools; it follows no rule but the protocol.
class RandomAgent final {
 public:
  RandomAgent(SessionWorld& world, unsigned seed) : world_(world), random_(seed) {
    talks_.push_back(first_messages());
  }

  void step() {
    const std::size_t place = below(talks_.size());
    const json::array talk = talks_[place];
    json::array sent;
    for (const json::value& message : talk) {
      if (message.at("role") != "assistant") {
        sent.push_back(message);
        continue;
      }
      for (json::value& each : rewritten(message.as_object())) sent.push_back(std::move(each));
    }
    if (chance(0.05) && talk.size() > 4) {
      sent.resize(2);
      sent.push_back({{"role", "user"}, {"content", "what was before is forgotten"}});
    }
    json::array tools{look_tool()};
    if (chance(0.1)) {
      json::object other = look_tool();
      other["function"].as_object()["name"] = "book";
      tools.push_back(other);
    }
    const bool is_read = !chance(0.05);
    const json::object message =
        world_.ask({{"messages", sent}, {"tools", tools}}, turn(), false, is_read);
    if (!is_read) return;
    json::array after = talk;
    after.push_back(message);
    append_next(message, after, text() + "?", text());
    if (chance(0.2)) {
      talks_.push_back(std::move(after));
    } else {
      talks_[place] = std::move(after);
    }
  }

 private:
  std::size_t below(std::size_t count) { return random_() % count; }
  bool chance(double share) { return (random_() % 1000) < share * 1000; }

  std::string text() {
    constexpr std::array<const char*, 6> kWords{"a", "an answer", "x\n\ny", " ", "42", "look"};
    std::string words;
    for (std::size_t i = below(4); i > 0; --i) words += std::string(kWords[below(6)]) + " ";
    return words;
  }

  SampledText turn() {
    std::string said = chance(0.5) ? "<think>\n" + text() + "\n</think>\n\n" : "";
    said += text();
    constexpr std::array<int, 4> kCalls{0, 0, 1, 2};
    const int num_calls = kCalls[below(4)];
    for (int i = 0; i < num_calls; ++i)
      said += (i > 0 ? "\n" : "") + call_text({{"n", i}, {"city", text()}});
    if (chance(0.15)) {
      said.resize(below(said.size() + 1));
      return {said.empty() ? "a" : said, ""};
    }
    return {said, num_calls > 0 ? world_.family.end_of_calls : world_.family.end};
  }

  std::vector<json::value> rewritten(json::object message) {
    json::value& content = message["content"];
    if (chance(0.2)) message.erase("reasoning_content");
    if (chance(0.2) && message.contains("tool_calls")) {
      for (json::value& call : message["tool_calls"].as_array()) call.as_object()["id"] = "other";
    }
    if (chance(0.2)) content = " \n" + std::string(content.as_string()) + "\n";
    if (chance(0.05)) content = "somebody's own words";
    if (chance(0.2) && message.contains("tool_calls")) content = "";
    if (chance(0.1) && message.contains("tool_calls")) {
      json::object calls = message;
      calls["content"] = nullptr;
      message.erase("tool_calls");
      return {message, calls};
    }
    if (chance(0.2))
      content = json::array{json::object{{"type", "text"}, {"text", json::value(content)}}};
    return {message};
  }

  SessionWorld& world_;
  std::mt19937 random_;
  std::vector<json::array> talks_;
};

TEST(RandomAgents, MakeNoSampledTokenUntrainedOrTrainedTwice) {
  for (const TemplateFamily& family : template_families()) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE(std::string(family.name) + ", seed " + std::to_string(seed));
      SessionOptions options;
      options.keeps_thoughts = seed % 4 != 3;
      SessionWorld world(family, options, seed % 2 == 1);
      RandomAgent agent(world, seed);
      for (int i = 0; i < 14; ++i) agent.step();
      world.expect_each_token_is_trained_once();
    }
  }
}

}  // namespace
}  // namespace slime::engine
