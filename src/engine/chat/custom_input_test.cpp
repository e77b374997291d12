#include "engine/chat/custom_input.h"

#include <gtest/gtest.h>

namespace slime::engine {
namespace {

std::string input_of(std::string_view arguments, std::size_t split) {
  CustomInput input;
  std::string text = input.add(arguments.substr(0, split));
  text += input.add(arguments.substr(split));
  return text + input.finish();
}

TEST(CustomInput, IsTheTextOfTheOneArgumentAtAnySplit) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"input": "ls -l \"a\\b\"\n"})", "ls -l \"a\\b\"\n"},
      {R"( { "input" : "" } )", ""},
      {R"({"input":"\u00e9 \ud83d\ude80!"})", "\u00e9 \U0001F680!"},
      {R"({"input":"\ud83d"})", "\ufffd"},
      {R"({"input":"\ud83d\n."})", "\ufffd\n."},
      {R"({"input": "cut)", "cut"},
      {R"({"why": 1, "input": "x"})", "x"},
      {R"({"other": 1})", R"({"other": 1})"},
      {R"(echo hi)", "echo hi"},
      {R"({"in put": "x"})", R"({"in put": "x"})"},
  };
  for (const auto& [arguments, text] : cases) {
    for (std::size_t split = 0; split <= std::string_view(arguments).size(); ++split)
      EXPECT_EQ(input_of(arguments, split), text) << arguments << " at " << split;
  }
}

TEST(CustomInput, ComesWhileItIsWritten) {
  CustomInput input;
  EXPECT_EQ(input.add(R"({"input": "ab)"), "ab");
  EXPECT_EQ(input.add(R"(c\)"), "c");
  EXPECT_EQ(input.add(R"(td"})"), "\td");
}

}  // namespace
}  // namespace slime::engine
