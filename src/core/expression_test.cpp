#include "core/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace slime {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Expressions, AreTheWholeTextOrAPartOfIt) {
  const Expression layers("layers\\.[02]\\.(q|o)_proj", "targets");
  EXPECT_TRUE(layers.is_whole("layers.2.q_proj"));
  EXPECT_FALSE(layers.is_whole("model.layers.2.q_proj"));
  EXPECT_FALSE(layers.is_whole("layers.2.q_proj.weight"));
  EXPECT_TRUE(layers.is_in("model.layers.2.q_proj.weight"));
  EXPECT_FALSE(layers.is_in("model.layers.1.q_proj"));
  EXPECT_TRUE(Expression("a|ab", "x").is_whole("ab"));
  EXPECT_TRUE(Expression("(?:.*\\.)?(?:(?!gate).*_proj)", "x").is_whole("mlp.up_proj"));
}

TEST(Expressions, SayWhatTheirFirstGroupIs) {
  const Expression layer(R"(.*?\.[^.]*\.(\d+)\..*)", "layers_pattern");
  EXPECT_EQ(layer.first_group("model.layers.17.mlp.up_proj"), "17");
  EXPECT_EQ(layer.first_group("lm_head"), "");
  EXPECT_EQ(Expression("(a)?b", "x").first_group("b"), "");
  EXPECT_EQ(Expression("b", "x").first_group("b"), "");
}

TEST(Expressions, ThatAreNoneAreRefused) {
  for (const std::string& text :
       {std::string("("), std::string("[a"), std::string("*"), std::string("\\C"),
        std::string("\xff"), std::string(101, '(') + std::string(101, ')'), std::string(5000, 'a')})
    EXPECT_THAT([&] { Expression(text, "rank_pattern"); },
                ThrowsMessage<ConfigError>(HasSubstr("rank_pattern: \"")))
        << text.substr(0, 20);
}

/// Each would take steps without end.
TEST(Expressions, ThatBacktrackForEverGiveUp) {
  const std::string text = std::string(60, 'a') + "!";
  for (const char* hostile : {"(a+)+[bc]", "(a|aa)+[bc]", "(.*)*[xy]", "(?:a?){40}a{60}[bc]",
                              "(a*?)*?[bc]", R"((.*)(.*)(.*)(.*)(.*)\5\4\3\2\1[^!a])", "(?R)a|b"})
    EXPECT_THAT([&] { static_cast<void>(Expression(hostile, "alpha_pattern").is_whole(text)); },
                ThrowsMessage<ConfigError>(HasSubstr("cannot be looked for in")))
        << hostile;
}

}  // namespace
}  // namespace slime
