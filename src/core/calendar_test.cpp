#include "core/calendar.h"

#include <gtest/gtest.h>

namespace slime {
namespace {

using std::chrono::local_days;
using std::chrono::year;

TEST(Calendar, ADateReadsBackAsItWasWritten) {
  const local_days date(year(2024) / 2 / 29);
  EXPECT_EQ(to_date_text(date), "2024-02-29");
  EXPECT_EQ(parse_date_text("2024-02-29"), date);
}

TEST(Calendar, OnlyDatesThatExistInTheOneFormAreRead) {
  for (const char* text : {"2023-02-29", "2024-13-01", "2024-2-29", "2024-02-29T00:00",
                           " 2024-02-29", "24-02-29", "+024-02-29", "today", ""}) {
    EXPECT_FALSE(parse_date_text(text)) << text;
  }
}

TEST(Calendar, TheTimeOfDayIsThatOfThisMachine) {
  constexpr double kNoonOfNewYear = 1767268800;  // 2026-01-01 12:00 UTC
  const auto distance = local_time(kNoonOfNewYear) - std::chrono::local_days(year(2026) / 1 / 1);
  EXPECT_LE(std::chrono::abs(distance - std::chrono::hours(12)), std::chrono::hours(14));
}

}  // namespace
}  // namespace slime
