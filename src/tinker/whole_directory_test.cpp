#include "tinker/whole_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "core/temporary_folder.h"
#include "train/checkpoint_directory.h"

namespace slime::tinker {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Fill = std::function<fs::path(const fs::path&)>;

Fill with_file(const std::string& text) {
  return [text](const fs::path& part) {
    fs::create_directories(part);
    std::ofstream(part / "file") << text;
    return part;
  };
}

/// As a trainer's state is written.
Fill that_fails(int error) {
  return [error](const fs::path& part) {
    return train::write_checkpoint_directory(part, 0, [error](const fs::path& folder) {
      std::ofstream(folder / "file") << "a part of it";
      throw std::system_error(error, std::generic_category(), "file");
    });
  };
}

std::string problem_of(const fs::path& directory, const Fill& fill) {
  try {
    write_whole_directory(directory, 12'300'000, fill);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was wrong";
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
}

TEST(WholeDirectory, TakesThePlaceOfTheOneBefore) {
  const TemporaryFolder folder("whole-directory");
  const fs::path directory = folder.path() / "one";
  for (const char* text : {"first", "second"}) {
    write_whole_directory(directory, 0, with_file(text));
    std::string found;
    std::ifstream(directory / "file") >> found;
    EXPECT_EQ(found, text);
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre("one"));
}

TEST(WholeDirectory, AFullDiskIsToldWithTheFolderWhatIsNeededAndWhatIsFree) {
  const TemporaryFolder folder("whole-directory");
  const fs::path directory = folder.path() / "one";
  for (const int error : {ENOSPC, EDQUOT}) {
    EXPECT_THAT(problem_of(directory, that_fails(error)),
                AllOf(HasSubstr(directory.string() + ": cannot be written: "),
                      HasSubstr("about 12.3 MB, and "), HasSubstr(" MB are free"),
                      Not(HasSubstr("--")), Not(HasSubstr(".part"))));
  }
  const Fill plain = [](const fs::path&) -> fs::path {
    throw std::system_error(ENOSPC, std::generic_category(), "file");
  };
  EXPECT_THAT(problem_of(directory, plain), HasSubstr("about 12.3 MB, and "));
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST(WholeDirectory, WhatElseGoesWrongNamesTheFolderAlone) {
  const TemporaryFolder folder("whole-directory");
  const fs::path directory = folder.path() / "one";
  EXPECT_THAT(problem_of(directory, that_fails(EIO)),
              AllOf(HasSubstr(directory.string() + ": cannot be written: "), Not(HasSubstr("MB")),
                    Not(HasSubstr("--"))));
  fs::create_symlink("nothing", directory);
  EXPECT_THAT(problem_of(directory, with_file("text")), HasSubstr(": cannot be written: "));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("one"));
}

}  // namespace
}  // namespace slime::tinker
