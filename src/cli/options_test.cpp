#include "cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace slime::cli {
namespace {

using ::testing::HasSubstr;

TEST(Options, AMisspeltOptionIsNamedAlsoWhereItIsTheOneThatIsRequired) {
  CLI::App app("Serves.", "slime serve");
  std::string model;
  app.add_option("--model", model)->required();
  const std::vector<std::string> words{"--modle", "tiny"};
  testing::internal::CaptureStderr();
  EXPECT_EQ(parse_options(app, words), 2);
  const std::string says = testing::internal::GetCapturedStderr();
  EXPECT_THAT(says, HasSubstr("slime serve: unknown option --modle; did you mean --model?"));
  EXPECT_THAT(says, HasSubstr("--model is required"));
}

}  // namespace
}  // namespace slime::cli
