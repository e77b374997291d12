#include "report/rollout_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "core/replace_file.h"
#include "report/rollout_files.h"

namespace slime::report {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

fs::path fresh_folder(const std::string& name) {
  fs::path folder = fs::path(testing::TempDir()) / name;
  fs::remove_all(folder);
  return folder;
}

std::vector<Group> groups() {
  std::vector<Group> made;
  for (int64_t g = 0; g < 3; ++g) {
    Group group{.ordinal = g};
    for (int64_t i = 0; i < 2; ++i) {
      Sample sample;
      sample.group = g;
      sample.ordinal = 2 * g + i;
      sample.tokens = {1, 2, static_cast<TokenId>(10 * g + i)};
      sample.prompt_length = 1;
      sample.reward = 0.5;
      sample.status = Status::kCompleted;
      group.samples.push_back(sample);
    }
    made.push_back(group);
  }
  return made;
}

std::string refusal_of(const fs::path& path) {
  try {
    read_samples(path);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(RolloutArchive, GivesBackItsSamples) {
  const fs::path path = fresh_folder("archive") / "x_7.straw.json";
  write_archive(path, 7, groups());
  const std::vector<Group> read = read_samples(path);
  ASSERT_EQ(read.size(), 3U);
  EXPECT_EQ(read[2].samples[1].tokens, groups()[2].samples[1].tokens);
}

TEST(RolloutArchive, ItsIndexLeadsToEachSample) {
  const fs::path path = fresh_folder("index") / "x_7.straw.json";
  write_archive(path, 7, groups());
  const json::object descriptor = archive_descriptor(path);
  EXPECT_EQ(descriptor.at("rollout_id").as_int64(), 7);
  std::ifstream data(data_of_archive(path, descriptor), std::ios::binary);
  for (const json::value& entry : descriptor.at("index").as_array()) {
    const json::array& fields = entry.as_array();
    std::string line(fields[3].to_number<std::size_t>(), '\0');
    data.seekg(fields[2].to_number<int64_t>());
    data.read(line.data(), static_cast<std::streamsize>(line.size()));
    const json::value sample = parse_json(line, "line");
    EXPECT_EQ(sample_from_json(sample.as_object(), "line").ordinal, fields[0].as_int64());
  }
}

TEST(RolloutArchive, OneOfTheOriginalsIsCalledByItsName) {
  const fs::path path = fresh_folder("straw") / "x_5.straw.json";
  fs::create_directories(path.parent_path());
  replace_file(path, R"({
    "format": "slime.straw-debug", "version": 1, "rollout_id": 5, "evaluation": false,
    "root": "/pool", "manifest": "m", "storage_owner": "o"})");
  EXPECT_THAT(refusal_of(path), AllOf(HasSubstr("slime.straw-debug version 1, rollout 5"),
                                      HasSubstr("/pool"), HasSubstr("export_pt")));
}

TEST(RolloutArchive, DataThatAreNotThoseItDescribesAreRefused) {
  const fs::path path = fresh_folder("changed") / "x_7.straw.json";
  write_archive(path, 7, groups());
  const fs::path data = path.parent_path() / "x_7.straw.jsonl";
  std::ifstream file(data, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  replace_file(data, bytes + "x");
  EXPECT_THAT(refusal_of(path), HasSubstr("bytes, and"));
  ++bytes[bytes.find("10")];
  replace_file(data, bytes);
  EXPECT_THAT(refusal_of(path), HasSubstr("SHA-256 is another"));
  fs::remove(data);
  EXPECT_THAT(refusal_of(path), HasSubstr("are not there"));
  replace_file(path, R"({"format": "slime.rollout", "version": 1, "data": "../x", "bytes": 0})");
  EXPECT_THAT(refusal_of(path), HasSubstr("should be a file beside it"));
  replace_file(path, R"({"format": "slime.rollout", "version": 2})");
  EXPECT_THAT(refusal_of(path), HasSubstr("slime.rollout version 2"));
}

TEST(RolloutArchive, JsonLinesUnderItsNameAreStillRead) {
  const fs::path path = fresh_folder("lines") / "x_7.straw.json";
  write_samples(path, groups());
  EXPECT_EQ(read_samples(path).size(), 3U);
}

}  // namespace
}  // namespace slime::report
