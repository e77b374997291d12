#include "model/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "core/error.h"

namespace slime::model {
namespace {

using ::testing::HasSubstr;

class Safetensors : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 ("slime_safetensors_" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  /// A file of this header and as many zero bytes of data.
  std::filesystem::path write(const std::string& header, size_t data_bytes) {
    return write_raw(header.size(), header + std::string(data_bytes, '\0'));
  }
  std::filesystem::path write_raw(uint64_t length, const std::string& rest) {
    const auto path = directory_ / "file.safetensors";
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << rest;
    return path;
  }
  std::string problem_of(const std::filesystem::path& path) {
    try {
      const SafetensorsFile file(path);
      return "none";
    } catch (const ConfigError& error) {
      return error.what();
    }
  }

  std::filesystem::path directory_;
};

TEST_F(Safetensors, ReadWhatWasWrittenInEveryPrecision) {
  for (const auto stored : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    const Tensor a = at::randn({5, 7}), b = at::randn({3});
    write_safetensors(directory_ / "x.safetensors",
                      {{"a", a}, {"b", b}, {"none", at::zeros({0, 4})}}, stored);
    const SafetensorsFile file(directory_ / "x.safetensors");
    EXPECT_EQ(file.tensors().size(), 3U);
    EXPECT_EQ(file.metadata().at("format"), "pt");
    EXPECT_TRUE(file.read("a").equal(a.to(stored)));
    for (const auto read : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
      Tensor out = at::empty({5, 7}, read);
      file.read(file.tensors().at("a"), {}, out);
      EXPECT_TRUE(out.equal(a.to(stored).to(read)));
    }
  }
}

TEST_F(Safetensors, ReadOnlyTheSliceThatIsAskedFor) {
  const Tensor a = at::randn({6, 8});
  write_safetensors(directory_ / "x.safetensors", {{"a", a}});
  const SafetensorsFile file(directory_ / "x.safetensors");
  Tensor rows = at::empty({2, 8}), columns = at::empty({6, 4}, at::kDouble);
  const StoredTensor& stored = file.tensors().at("a");
  file.read(stored, Slice{0, 2, 4}, rows);
  file.read(stored, Slice{1, 4, 8}, columns);
  EXPECT_TRUE(rows.equal(a.slice(0, 2, 4)));
  EXPECT_TRUE(columns.equal(a.slice(1, 4, 8).to(at::kDouble)));
  Tensor pieces = at::empty({4, 5});
  file.read(stored, {{0, 0, 2}, {0, 3, 5}, {1, 0, 3}, {1, 6, 8}}, pieces);
  EXPECT_TRUE(pieces.equal(
      at::cat({a.slice(0, 0, 2), a.slice(0, 3, 5)}).index_select(1, at::tensor({0, 1, 2, 6, 7}))));
}

TEST_F(Safetensors, KeepTheOldFileWhenTheNewOneCannotBeWritten) {
  write_file(directory_ / "x", "old");
  EXPECT_THROW(write_file(directory_ / "absent" / "x", "new"), std::system_error);
  std::ifstream in(directory_ / "x");
  std::string text;
  in >> text;
  EXPECT_EQ(text, "old");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "x.tmp"));
}

TEST_F(Safetensors, NameWhatIsWrongWithADamagedFile) {
  struct Case {
    const char* header;
    size_t data_bytes;
    const char* problem;
  };
  const Case cases[] = {
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, "none"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7, "truncated"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9,
       "1 bytes after the last tensor"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "need 12"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "need 8"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", 8, "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, "data_offsets"},
      {R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})", 8, "unknown dtype"},
      {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, "no dtype"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "shape"},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,8]}})", 8, "shape"},
      {R"({"a":{"dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,8]}})", 8,
       "larger than any"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4, "shape"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, "overlaps"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})",
       16, "belong to none"},
      {R"({"a":7})", 0, "must be an object"},
      {R"([1])", 0, "must be a JSON object"},
      {R"({"a":)", 0, "not valid JSON"},
      {"", 0, "not valid JSON"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(problem_of(write(c.header, c.data_bytes)), HasSubstr(c.problem)) << c.header;
  }
  EXPECT_THAT(problem_of(write_raw(uint64_t{1} << 62, "{}")), HasSubstr("header claims"));
  EXPECT_THAT(problem_of(write_raw(3, "{}")), HasSubstr("header claims"));
  EXPECT_THAT(problem_of(directory_ / "absent"), HasSubstr("cannot be opened"));
  EXPECT_THAT(problem_of(directory_), HasSubstr("is a directory, not a regular file"));
  // Where opening it were all, the test would wait for a writer.
  ASSERT_EQ(::mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(problem_of(directory_ / "pipe"), HasSubstr("pipe: is a pipe, not a regular file"));
  std::ofstream(directory_ / "short") << "abc";
  EXPECT_THAT(problem_of(directory_ / "short"), HasSubstr("too short"));
}

TEST_F(Safetensors, ListAllBadTensorsAtOnce) {
  const auto path = write(R"({"a":{"dtype":"F32","shape":[9],"data_offsets":[0,8]},"b":7})", 8);
  EXPECT_THAT(problem_of(path), ::testing::AllOf(HasSubstr("tensor a"), HasSubstr("tensor b")));
}

TEST_F(Safetensors, WhereNoMoreFilesMayBeOpenTheLimitIsNamed) {
  const auto path = write(R"({})", 0);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string problem = problem_of(path);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(problem, HasSubstr("Too many open files; a checkpoint needs one"));
}

}  // namespace
}  // namespace slime::model
