#include "cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/app_manual.h"

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

TEST(Options, CommandsOfADescriptionAreExamplesOfUse) {
  CLI::App app("Sells tea. And cups.\n\n  slime tea --green", "slime tea");
  std::string kind;
  app.add_option("KIND,--kind", kind, "of tea")->required();
  const help::Manual manual = manual_of(app);
  EXPECT_EQ(manual.summary, "Sells tea. And cups.");
  EXPECT_THAT(manual.usage, testing::ElementsAre("slime tea KIND [OPTIONS]", "slime tea --green"));
}

TEST(Options, ChecksOfAnOptionAreItsWordsAndItsRange) {
  CLI::App app("Serves.", "slime serve");
  std::string device;
  int port = 0;
  bool loud = false;
  app.add_option("--device", device, "where")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("-p,--port", port, "port")->check(CLI::Range(1, 9))->capture_default_str();
  app.add_flag("--loud", loud, "no effect here");
  const help::Manual manual = manual_of(app);
  EXPECT_THAT(manual.find("--device")->choices, testing::UnorderedElementsAre("cpu", "cuda"));
  EXPECT_EQ(manual.find("-p")->range, "1 - 9");
  EXPECT_EQ(manual.find("--port")->value, "N");
  EXPECT_EQ(manual.find("--port")->fallback, "0");
  EXPECT_TRUE(manual.find("--loud")->is_idle && manual.find("--loud")->value.empty());
}

TEST(Options, AMistypedWordOfAnOptionIsOffered) {
  const auto said = [](const std::vector<std::string>& arguments) {
    CLI::App app("Serves.", "slime serve");
    std::string device, file;
    app.add_option("--device", device, "where")->check(CLI::IsMember({"auto", "cpu", "cuda"}));
    app.add_option("FILE", file, "what");
    testing::internal::CaptureStderr();
    const auto code = parse_options(app, arguments);
    return testing::internal::GetCapturedStderr() + (code ? std::to_string(*code) : "");
  };
  EXPECT_THAT(said({"--device", "cdua"}), testing::HasSubstr("; did you mean cuda?\n"));
  EXPECT_THAT(said({"--device=cpuu", "a"}), testing::HasSubstr("; did you mean cpu?\n"));
  EXPECT_THAT(said({"--device", "abacus"}), testing::Not(testing::HasSubstr("did you mean")));
  EXPECT_EQ(said({"--device", "cuda"}), "");
}

TEST(Options, HelpOfAMistypedHelpIsOffered) {
  CLI::App app("Serves.", "slime serve");
  EXPECT_EQ(option_meant_by(manual_of(app), "--hlep"), "--help");
}

}  // namespace
}  // namespace slime::cli
