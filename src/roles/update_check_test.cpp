#include "roles/update_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::roles {
namespace {

using ::testing::HasSubstr;

std::string problem_of(const Expected<WeightChecksums>& engines) {
  try {
    require_same_weights({{"norm.weight", 1}, {"head.weight", 2}, {"embed.weight", 3}}, engines);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(UpdateCheck, ADifferenceEndsTheRunWithTheTensorsNames) {
  EXPECT_EQ(
      problem_of(WeightChecksums{{"norm.weight", 1}, {"head.weight", 2}, {"embed.weight", 3}}),
      "none");
  EXPECT_THAT(problem_of(WeightChecksums{{"norm.weight", 9}, {"head.weight", 2}}),
              HasSubstr("2 of 3 tensors of the engines are not those of the trainer: embed.weight, "
                        "norm.weight"));
  EXPECT_EQ(
      problem_of(WeightChecksums{
          {"norm.weight", 1}, {"head.weight", 2}, {"embed.weight", 3}, {"of a draft layer", 4}}),
      "none");
  EXPECT_THAT(problem_of(failure("engine 1 is lost")),
              HasSubstr("--check-weight-update-equal: engine 1 is lost"));
}

}  // namespace
}  // namespace slime::roles
