#include "engine/sessions/turn_tree.h"

#include <gtest/gtest.h>

namespace slime::engine {
namespace {

SessionTurn turn_of(std::vector<TokenId> prompt, std::vector<TokenId> output) {
  SessionTurn made;
  made.context = std::move(prompt);
  made.log_probs.assign(output.size(), -0.5F);
  made.output = std::move(output);
  return made;
}

using TurnIds = std::vector<TokenId>;

TEST(TurnTree, APromptThatBeginsWithAllTokensOfATurnGoesOnFromIt) {
  TurnTree tree;
  SessionTurn& first = tree.add(turn_of({1, 2}, {3}), nullptr);
  SessionTurn& second = tree.add(turn_of({1, 2, 3, 4}, {5}), nullptr);
  SessionTurn& other = tree.add(turn_of({1, 2, 4}, {5}), nullptr);
  EXPECT_EQ(second.parent, &first);
  EXPECT_EQ(second.context, TurnIds{4});
  EXPECT_EQ(second.num_prompt_tokens(), 4);
  EXPECT_EQ(TurnTree::tokens_of(second), (TurnIds{1, 2, 3, 4, 5}));
  EXPECT_EQ(other.parent, nullptr);
  EXPECT_EQ(other.context, (TurnIds{1, 2, 4}));
}

TEST(TurnTree, OfTurnsWithTheSameTokensTheRecognisedOneGoesOn) {
  TurnTree tree;
  SessionTurn& first = tree.add(turn_of({1}, {2}), nullptr);
  SessionTurn& same = tree.add(turn_of({1}, {2}), nullptr);
  EXPECT_EQ(tree.add(turn_of({1, 2, 3}, {4}), &same).parent, &same);
  EXPECT_EQ(tree.add(turn_of({1, 2, 5}, {6}), nullptr).parent,
            &first);  // nothing goes on from it yet
  SessionTurn& elsewhere = tree.add(turn_of({9}, {9}), nullptr);
  EXPECT_NE(tree.add(turn_of({1, 2, 7}, {8}), &elsewhere).parent, &elsewhere);
}

TEST(TurnTree, ATurnIsTakenBackWhileNothingGoesOnFromIt) {
  TurnTree tree;
  SessionTurn& first = tree.add(turn_of({1}, {2}), nullptr);
  SessionTurn& second = tree.add(turn_of({1, 2, 3}, {4}), nullptr);
  EXPECT_FALSE(tree.forget(first));
  EXPECT_TRUE(tree.forget(second));
  EXPECT_TRUE(first.children.empty());
  EXPECT_EQ(tree.add(turn_of({1, 2, 3, 4, 5}, {6}), &second).parent, &first);
}

}  // namespace
}  // namespace slime::engine
