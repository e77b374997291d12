#include "report/users_output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace slime::report {
namespace {

namespace fs = std::filesystem;

struct Logs {
  Logs() { fs::create_directories(folder); }
  ~Logs() { fs::remove_all(folder); }
  void write(const char* name, const char* text) const { std::ofstream(folder / name) << text; }
  std::string naming(const char* name) const {
    return "what users' functions next to the trainer print is in " + (folder / name).string();
  }
  fs::path folder = fs::temp_directory_path() / ("slime_users_output_" + std::to_string(getpid()));
};

TEST(UsersOutput, IsNamedOnceWhenSomethingIsPrinted) {
  const Logs logs;
  UsersOutput output(logs.folder);
  EXPECT_EQ(output.line(), std::nullopt);
  logs.write("host-0.log", "of a reward, which its host names");
  logs.write("trainer-0.log", "");
  EXPECT_EQ(output.line(), std::nullopt);
  logs.write("trainer-0.log", "hello");
  EXPECT_EQ(output.line(), logs.naming("trainer-0.log"));
  EXPECT_EQ(output.line(), std::nullopt);
}

TEST(UsersOutput, OfSeveralRanksIsNamedTogether) {
  const Logs logs;
  logs.write("trainer-0.log", "hello");
  logs.write("trainer-3.log", "hello");
  EXPECT_EQ(UsersOutput(logs.folder).line(), logs.naming("trainer-*.log"));
}

TEST(UsersOutput, WithoutAFolderThereIsNone) {
  EXPECT_EQ(UsersOutput("/does/not/exist").line(), std::nullopt);
}

}  // namespace
}  // namespace slime::report
