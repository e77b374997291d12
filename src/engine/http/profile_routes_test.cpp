/// A trace of the server, by SGLang's routes.

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  return files;
}

TEST(ProfileRoutes, ATraceIsWrittenBelowTheFolderAndNowhereElse) {
  const std::filesystem::path folder = testing::TempDir() + "profile_routes";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  {
    TestServer test("Hi", {.profile_directory = folder});
    EXPECT_EQ(test.call("POST", "/stop_profile").status, 400);
    for (const char* body : {R"({"output_dir":"../x"})", R"({"output_dir":"/tmp"})",
                             R"({"activities":["DISK"]})", R"({"num_steps":0})", R"({"steps":1})"})
      EXPECT_EQ(test.call("POST", "/start_profile", body).status, 400) << body;
    const auto begun = test.call("POST", "/start_profile", R"({"output_dir":"a/b"})");
    EXPECT_EQ(begun.body, "Start profiling.\n");
    EXPECT_EQ(test.call("POST", "/start_profile").status, 400) << "one at a time";
    test.post("/generate", R"({"text":"x"})");
    EXPECT_EQ(test.call("POST", "/stop_profile").status, 200);
    ASSERT_EQ(files_in(folder).size(), 1U);
    EXPECT_EQ(files_in(folder)[0].parent_path().filename(), "b");
    EXPECT_EQ(test.call("POST", "/start_profile", R"({"num_steps":1,"output_dir":"c"})").status,
              200);
    test.post("/generate", R"({"text":"x"})");
    EXPECT_TRUE(eventually([&] { return files_in(folder).size() == 2; })) << "it ends by itself";
  }
  std::filesystem::remove_all(folder);
}

TEST(ProfileRoutes, WithoutAFolderNothingIsWritten) {
  TestServer test("Hi");
  const auto response = test.call("POST", "/start_profile", "{}");
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("--profile-dir"), std::string::npos);
}

}  // namespace
}  // namespace slime::engine
