#include "tinker/user_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace slime::tinker {
namespace {

json::object read(const std::string& text) {
  const json::value body = parse_json(text, "test");
  return read_user_metadata(FieldReader(body.as_object(), ""));
}

TEST(UserMetadata, IsTextsByName) {
  EXPECT_EQ(read(R"({"user_metadata": {"renderer_name": "qwen3", "step": 3, "none": null}})"),
            (json::object{{"renderer_name", "qwen3"}, {"step", "3"}}));
  EXPECT_TRUE(read("{}").empty());
  EXPECT_TRUE(read(R"({"user_metadata": null})").empty());
}

TEST(UserMetadata, OfAnotherFormOrTooLongIsRefused) {
  EXPECT_THROW(read(R"({"user_metadata": [1]})"), ConfigError);
  const std::string half(40 << 10, 'x');
  EXPECT_EQ(read(R"({"user_metadata": {"a": ")" + half + R"("}})").size(), 1U);
  EXPECT_THROW(read(R"({"user_metadata": {"a": ")" + half + R"(", "b": ")" + half + R"("}})"),
               ConfigError);
}

}  // namespace
}  // namespace slime::tinker
