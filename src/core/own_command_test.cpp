#include "core/own_command.h"

#include <gtest/gtest.h>

#include <fstream>

namespace slime {
namespace {

namespace fs = std::filesystem;

fs::path program_in(const fs::path& folder, const char* name = "slime") {
  fs::create_directories(folder);
  const fs::path program = folder / name;
  std::ofstream(program) << "#!/bin/sh\n";
  fs::permissions(program, fs::perms::owner_all);
  return program;
}

class OwnCommand : public testing::Test {
 protected:
  OwnCommand() { fs::remove_all(root_); }
  const fs::path root_ = fs::path(testing::TempDir()) / "own command";
};

TEST_F(OwnCommand, IsTheNameWhereTheSearchFindsThisProgram) {
  const fs::path own = program_in(root_ / "build");
  fs::create_directories(root_ / "bin");
  fs::create_symlink(own, root_ / "bin" / "slime");
  const std::string search = "/no/such/folder:" + (root_ / "bin").string();
  EXPECT_EQ(command_word({.told = "", .typed = "slime", .exe = own, .search = search}), "slime");
}

TEST_F(OwnCommand, IsThePathWhereTheNameIsAnotherProgramOrNone) {
  const fs::path own = program_in(root_ / "build");
  const fs::path other = program_in(root_ / "other");
  const std::string quoted = "'" + own.string() + "'";  // its folder has a space
  for (const std::string& search : {std::string(), other.parent_path().string()})
    EXPECT_EQ(command_word({.told = "", .typed = own.string(), .exe = own, .search = search}),
              quoted);
  EXPECT_EQ(command_word({.told = "", .typed = "slime", .exe = own, .search = ""}), quoted)
      << "the search has changed since";
  EXPECT_EQ(command_word({.told = "", .typed = other.string(), .exe = own, .search = ""}), quoted)
      << "a script that has become this program";
}

TEST_F(OwnCommand, IsThePathAsItWasTyped) {
  const fs::path own = program_in(root_ / "build");
  const fs::path typed = root_.parent_path() / "link_to_slime";
  fs::remove(typed);
  fs::create_symlink(own, typed);
  EXPECT_EQ(command_word({.told = "", .typed = typed.string(), .exe = own, .search = ""}),
            typed.string());
}

TEST_F(OwnCommand, IsWhatTheWheelSays) {
  const fs::path own = program_in(root_ / "build");
  EXPECT_EQ(
      command_word({.told = "/venv/bin/slime", .typed = own.string(), .exe = own, .search = ""}),
      "/venv/bin/slime");
}

TEST_F(OwnCommand, OtherProgramsSpeakOfSlime) {
  const fs::path tests = program_in(root_ / "build", "slime_tests");
  EXPECT_EQ(command_word({.told = "", .typed = tests.string(), .exe = tests, .search = ""}),
            "slime");
  EXPECT_EQ(own_command("runs").substr(own_command("runs").rfind(' ')), " runs");
}

}  // namespace
}  // namespace slime
