#include "core/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fstream>

#include "core/error.h"
#include "core/json.h"
#include "core/temporary_folder.h"

namespace slime {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class RegularFiles : public ::testing::Test {
 protected:
  std::filesystem::path file(const char* name, std::string_view text) {
    std::ofstream(folder_.path() / name) << text;
    return folder_.path() / name;
  }
  static std::string problem_of(const std::filesystem::path& path, std::size_t limit = 100) {
    try {
      read_regular_file(path, limit, "JSON");
      return "none";
    } catch (const ConfigError& error) {
      return error.what();
    }
  }

  const TemporaryFolder folder_{"slime-regular-files"};
};

TEST_F(RegularFiles, AreReadWholeAlsoByALink) {
  const auto path = file("a.json", "[1, 2]");
  EXPECT_EQ(read_regular_file(path, 6, "JSON"), "[1, 2]");
  std::filesystem::create_symlink("a.json", folder_.path() / "link.json");
  EXPECT_EQ(read_regular_file(folder_.path() / "link.json", 6, "JSON"), "[1, 2]");
  EXPECT_EQ(read_regular_file(file("empty", ""), 6, "JSON"), "");
  EXPECT_EQ(open_regular_file(path).num_bytes, 6U);
}

TEST_F(RegularFiles, ThatAreTooLargeOrAbsentAreNamed) {
  const std::string path = file("a.json", "[1, 2]").string();
  EXPECT_EQ(problem_of(path, 5), path + ": 6 bytes of JSON, more than the limit of 5");
  const std::string absent = (folder_.path() / "b.json").string();
  EXPECT_EQ(problem_of(absent), absent + ": cannot be opened: No such file or directory");
}

/// Where opening were all, the test would wait for a writer of the pipe.
TEST_F(RegularFiles, AreNotPipesSocketsDevicesOrDirectories) {
  const std::string pipe = (folder_.path() / "pipe.json").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(problem_of(pipe), pipe + ": is a pipe, not a regular file");
  EXPECT_EQ(problem_of(folder_.path()),
            folder_.path().string() + ": is a directory, not a regular file");
  EXPECT_EQ(problem_of("/dev/zero"), "/dev/zero: is a device, not a regular file");
  sockaddr_un name{.sun_family = AF_UNIX};
  const std::string socket_path = (folder_.path() / "socket").string();
  ASSERT_LT(socket_path.size(), sizeof name.sun_path);
  socket_path.copy(name.sun_path, socket_path.size());
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  EXPECT_EQ(problem_of(socket_path), socket_path + ": is a socket, not a regular file");
}

TEST_F(RegularFiles, OfJsonAreSuchFilesToo) {
  const std::string pipe = (folder_.path() / "config.json").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  try {
    read_json_file(pipe);
    FAIL() << "a pipe was read";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), StartsWith(pipe + ": is a pipe"));
  }
  EXPECT_THAT(problem_of(file("b.json", "{}")), HasSubstr("none"));
}

}  // namespace
}  // namespace slime
