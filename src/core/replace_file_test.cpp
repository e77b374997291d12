#include "core/replace_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "core/error.h"

namespace slime {
namespace {

namespace fs = std::filesystem;

class ReplaceFile : public testing::Test {
 protected:
  ReplaceFile()
      : folder_(fs::temp_directory_path() / ("slime_replace_file_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~ReplaceFile() override { fs::remove_all(folder_); }

  std::string message(const fs::path& path) const {
    try {
      replace_file(path, "text");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return {};
  }

  const fs::path folder_;
};

TEST_F(ReplaceFile, PutsTheNewTextInThePlaceOfTheOld) {
  const fs::path path = folder_ / "a.txt";
  replace_file(path, std::string(100'000, 'x'));
  replace_file(path, "new\n");
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "new\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(ReplaceFile, SaysWhyItCouldNot) {
  const fs::path nowhere = folder_ / "missing" / "a.txt";
  EXPECT_EQ(message(nowhere), nowhere.string() + ": cannot be written: No such file or directory");
}

TEST_F(ReplaceFile, LeavesNothingBehindWhenItFails) {
  fs::create_directory(folder_ / "taken");  // a folder is not replaced by a file
  EXPECT_NE(message(folder_ / "taken"), "");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

}  // namespace
}  // namespace slime
