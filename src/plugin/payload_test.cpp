#include "plugin/payload.h"

#include <gtest/gtest.h>

#include <cstring>

#include "net/frame_channel.h"

namespace slime::plugin {
namespace {

Payload every_kind() {
  Payload payload{.head = {{"text", "\u00e4"}, {"list", json::array{1, 2.5, nullptr}}}};
  payload.columns = {std::vector<int32_t>{-1, 2, 3}, std::vector<int64_t>{int64_t{1} << 40},
                     std::vector<float>{0.5F}, std::vector<double>{},
                     std::vector<uint8_t>{1, 0, 1}};
  return payload;
}

TEST(Payload, RoundTripsEveryKindOfColumn) {
  const Payload payload = every_kind();
  const Payload read = decode(encode(payload));
  EXPECT_EQ(read.head, payload.head);
  EXPECT_EQ(read.columns, payload.columns);
}

TEST(Payload, ThatIsCutOffIsRefusedEverywhere) {
  const std::string whole = encode(every_kind());
  for (std::size_t size = 0; size + 8 <= whole.size(); ++size)
    EXPECT_THROW(decode(std::string_view(whole).substr(0, size)), net::FrameError) << size;
}

TEST(Payload, CountsThatAreLargerThanItAreRefusedBeforeAnythingIsAllocated) {
  std::string bytes = encode({.head = {}, .columns = {std::vector<double>{1}}});
  for (const uint64_t count : {UINT64_MAX, UINT64_MAX / 8, uint64_t{1} << 40}) {
    std::memcpy(bytes.data() + 16, &count, sizeof count);
    EXPECT_THROW(decode(bytes), net::FrameError);
  }
  const uint32_t columns = UINT32_MAX;
  std::memcpy(bytes.data() + 4, &columns, sizeof columns);
  EXPECT_THROW(decode(bytes), net::FrameError);
}

TEST(Payload, ListsOfWholeNumbersStandInTheHeadOrInAColumn) {
  const Columns columns = {std::vector<uint8_t>{1, 0}, std::vector<float>{1}};
  EXPECT_EQ(whole_numbers(json::array{7, 8}, columns), (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(whole_numbers(json::object{{"$column", 0}}, columns), (std::vector<int64_t>{1, 0}));
  for (const json::value& odd :
       {json::value(json::object{{"$column", 1}}), json::value(json::object{{"$column", 2}}),
        json::value(json::object{{"$column", -1}}), json::value(json::array{1.5}),
        json::value("x")})
    EXPECT_THROW(whole_numbers(odd, columns), net::FrameError) << odd;
}

}  // namespace
}  // namespace slime::plugin
