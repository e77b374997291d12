#include "core/model_title.h"

#include <gtest/gtest.h>

namespace slime {
namespace {

TEST(ModelTitle, IsTheNameOnTheHubOrThatOfTheFolder) {
  EXPECT_EQ(model_title("/c/hub/models--Qwen--Qwen3-0.6B/snapshots/0123abcd"), "Qwen3-0.6B");
  EXPECT_EQ(model_title("/c/hub/models--Qwen--Qwen3-0.6B/snapshots/0123abcd/"), "Qwen3-0.6B");
  EXPECT_EQ(model_title("data/models/tiny"), "tiny");
  EXPECT_EQ(model_title("data/models/tiny/"), "tiny");
  EXPECT_EQ(model_title("models--gpt2/snapshots/0123"), "0123");
  EXPECT_EQ(model_title("runs/snapshots/3"), "3");
}

}  // namespace
}  // namespace slime
