#include "config/flag_records.h"

#include <string>
#include <string_view>

#include "config/flag_table.h"

namespace slime::config {
namespace {

std::string_view type_of(std::string_view value_word) {
  if (value_word.empty()) return "switch";
  if (value_word.starts_with('N')) return "integer";
  return value_word == "X" ? "number" : "text";
}

json::value default_of(const FlagRow& flag, std::string_view type) {
  if (type == "switch") return false;
  const std::string text = default_text(flag);
  if (text.empty()) return nullptr;
  if (type == "integer") return std::stoll(text);
  if (type == "number") return std::stod(text);
  return json::value(text);
}

std::string_view status_of(const FlagRow& flag) {
  if (flag.status == FlagStatus::kRefused) return "refused";
  return flag.status == FlagStatus::kAccepted ? "accepted, no effect" : "works";
}

}  // namespace

json::array flag_records() {
  json::array records;
  for (const FlagRow& flag : flag_table()) {
    const std::string_view word = value_word(flag);
    const std::string_view type = type_of(word);
    records.push_back(
        json::object{{"name", flag.name},
                     {"type", type},
                     {"takes_several", word.ends_with("...")},
                     {"default", default_of(flag, type)},
                     {"choices", json::array(flag.choices.begin(), flag.choices.end())},
                     {"meaning", flag.meaning},
                     {"status", status_of(flag)}});
  }
  return records;
}

}  // namespace slime::config
