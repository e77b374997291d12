#include "core/calendar.h"

#include <fmt/format.h>

#include <cstdio>
#include <ctime>

namespace slime {

std::chrono::local_seconds local_time(double unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm fields{};
  localtime_r(&seconds, &fields);
  return std::chrono::local_seconds(std::chrono::seconds(seconds + fields.tm_gmtoff));
}

std::string to_date_text(std::chrono::local_days date) {
  const std::chrono::year_month_day day(date);
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()),
                     static_cast<unsigned>(day.month()), static_cast<unsigned>(day.day()));
}

std::optional<std::chrono::local_days> parse_date_text(std::string_view text) {
  int year = 0;
  unsigned month = 0, day = 0;
  if (std::sscanf(std::string(text).c_str(), "%4d-%2u-%2u", &year, &month, &day) != 3) return {};
  const std::chrono::year_month_day date{std::chrono::year{year}, std::chrono::month{month},
                                         std::chrono::day{day}};
  // Written back it has to be what was read: no blanks, no signs, nothing behind it.
  if (!date.ok() || to_date_text(std::chrono::local_days(date)) != text) return {};
  return std::chrono::local_days(date);
}

}  // namespace slime
