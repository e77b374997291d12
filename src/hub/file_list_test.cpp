#include "hub/file_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace slime::hub {
namespace {

using testing::HasSubstr;

const std::string kCommit(40, 'a');

std::string list_of(const std::string& siblings) {
  return R"({"sha": ")" + kCommit + R"(", "private": false, "siblings": [)" + siblings + "]}";
}

std::string refusal(const std::string& text) {
  try {
    parse_file_list(text, "a/b");
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(FileList, HasPathsSizesAndChecksums) {
  const Listing listing = parse_file_list(
      list_of(R"({"rfilename": "config.json", "size": 7, "blobId": ")" + kCommit +
              R"("}, {"rfilename": "x/model.safetensors", "size": 9, "blobId": ")" + kCommit +
              R"(", "lfs": {"sha256": ")" + std::string(64, 'b') + R"(", "size": 9}})"),
      "a/b");
  EXPECT_EQ(listing.commit, kCommit);
  ASSERT_EQ(listing.files.size(), 2U);
  EXPECT_EQ(listing.find("config.json")->size, 7);
  EXPECT_EQ(listing.find("config.json")->checksum, kCommit);
  // Of a file in large storage the hub's blobId is that of the pointer.
  EXPECT_EQ(listing.find("x/model.safetensors")->checksum, std::string(64, 'b'));
}

TEST(FileList, SizesAndChecksumsThatAreNoneAreNotKnown) {
  const Listing listing = parse_file_list(
      list_of(
          R"({"rfilename": "a"}, {"rfilename": "b", "size": -3, "blobId": "../x"},)"
          R"({"rfilename": "c", "size": 1.5, "lfs": {"sha256": 7}}, {"rfilename": "d", "lfs": {}})"),
      "a/b");
  ASSERT_EQ(listing.files.size(), 4U);
  for (const RepoFile& file : listing.files) {
    EXPECT_EQ(file.size, -1) << file.path;
    EXPECT_EQ(file.checksum, "") << file.path;
  }
}

TEST(FileList, PathsThatLeaveTheFolderAreRefused) {
  for (const std::string path : {"../x", "/etc/passwd", "a/../../x", "", "a\\\\b"})
    EXPECT_THAT(refusal(list_of(R"({"rfilename": ")" + path + R"("})")),
                HasSubstr("a file has the path"));
}

TEST(FileList, AnotherFormIsRefused) {
  for (const std::string text :
       {"", "[]", "{}", R"({"sha": "main", "siblings": []})", R"({"sha": 1, "siblings": []})"})
    EXPECT_NE(refusal(text), "no error") << text;
  EXPECT_NE(refusal(list_of("1")), "no error");
  EXPECT_NE(refusal(list_of(R"({"rfilename": 1})")), "no error");
}

}  // namespace
}  // namespace slime::hub
