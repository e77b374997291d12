#include "core/shell_word.h"

#include <gtest/gtest.h>

namespace slime {
namespace {

TEST(ShellWord, IsQuotedWhereAShellWouldReadItOtherwise) {
  EXPECT_EQ(shell_word("/runs/a-1_b.c"), "/runs/a-1_b.c");
  EXPECT_EQ(shell_word("my runs/$a"), "'my runs/$a'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("~/a"), "'~/a'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace slime
