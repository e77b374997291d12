#include "buffer/ledger_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/field_reader.h"

namespace slime::buffer {
namespace {

constexpr std::array<std::pair<Outcome, std::string_view>, 7> kWords{
    {{Outcome::kDispatched, "dispatched"},
     {Outcome::kPartial, "partial"},
     {Outcome::kScored, "scored"},
     {Outcome::kTrained, "trained"},
     {Outcome::kSkipped, "skipped"},
     {Outcome::kFiltered, "filtered"},
     {Outcome::kFailed, "failed"}}};
constexpr std::size_t kChecksumDigits = 8;
constexpr std::size_t kReasonLimit = 1000;  // of a failure's text, in bytes
/// Of one prompt, and of a run: sums of what is below them do not overflow.
constexpr int64_t kMostTokens = int64_t{1} << 40;
constexpr int64_t kMostOfARun = int64_t{1} << 60;

std::string with_checksum(const json::object& object) {
  const std::string text = json_text(object);
  return fmt::format("{:08x} {}\n", crc32c(text), text);
}

/// Cut at a character, so that the line stays UTF-8.
std::string_view shortened(std::string_view reason) {
  if (reason.size() <= kReasonLimit) return reason;
  std::size_t end = kReasonLimit;
  while (end > 0 && (static_cast<uint8_t>(reason[end]) & 0xc0U) == 0x80U) --end;
  return reason.substr(0, end);
}

json::object to_json(const LedgerRecord& record) {
  json::object object{{"ordinal", record.ordinal}, {"fate", to_string(record.outcome)}};
  if (record.step >= 0) object["step"] = record.step;
  if (!record.reason.empty()) object["reason"] = shortened(record.reason);
  if (record.tokens) object["tokens"] = *record.tokens;
  if (record.discarded > 0) object["discarded"] = record.discarded;
  return object;
}

json::object to_json(const LedgerTotals& totals) {
  return {{"checkpoint", totals.step},           {"next_ordinal", totals.next_ordinal},
          {"open_prompts", totals.open_prompts}, {"generated", totals.generated},
          {"pending", totals.pending},           {"discarded", totals.discarded}};
}

json::object to_json(const Rollback& rollback) { return {{"rollback_to", rollback.position}}; }

json::object to_json(const LedgerSums& sums) {
  json::array ended, open;
  for (const auto& [first, last] : sums.ended) ended.push_back(json::array{first, last});
  for (const LedgerRecord& record : sums.open)
    open.push_back(json::array{record.ordinal, to_string(record.outcome), record.discarded});
  json::object object{{"collected_to", sums.position},
                      {"ended", std::move(ended)},
                      {"open", std::move(open)},
                      {"prompts", json::value_from(sums.prompts)},
                      {"tokens", json::value_from(sums.tokens)},
                      {"discarded", sums.discarded},
                      {"not_counted", sums.num_not_counted},
                      {"before", sums.num_before}};
  if (sums.totals) object["totals"] = to_json(*sums.totals);
  return object;
}

std::optional<int64_t> number_of(const json::value& value) {
  return value.is_int64() ? std::optional(value.get_int64()) : std::nullopt;
}

bool read_four(const json::object& object, std::string_view name, std::array<int64_t, 4>& four) {
  const json::value* list = object.if_contains(name);
  if (list == nullptr || !list->is_array() || list->get_array().size() != four.size()) return false;
  for (std::size_t i = 0; i < four.size(); ++i) {
    const auto number = number_of(list->get_array()[i]);
    if (!number || *number < 0 || *number > kMostOfARun) return false;
    four[i] = *number;
  }
  return true;
}

/// Intervals ascend, and two never touch.
bool read_ended(const json::array& list, LedgerSums& sums) {
  for (const json::value& entry : list) {
    const json::array* pair = entry.if_array();
    if (pair == nullptr || pair->size() != 2) return false;
    const auto first = number_of((*pair)[0]), last = number_of((*pair)[1]);
    if (!first || !last || *first > *last || *last - *first > kMostOfARun ||
        *first < -kMostOfARun || *last > kMostOfARun)
      return false;
    if (!sums.ended.empty() && *first <= sums.ended.back().second + 1) return false;
    sums.ended.emplace_back(*first, *last);
  }
  return true;
}

bool read_open(const json::array& list, LedgerSums& sums) {
  for (const json::value& entry : list) {
    const json::array* fields = entry.if_array();
    if (fields == nullptr || fields->size() != 3 || !(*fields)[1].is_string()) return false;
    const auto ordinal = number_of((*fields)[0]), discarded = number_of((*fields)[2]);
    const std::string_view name = (*fields)[1].get_string();
    const auto* word =
        std::ranges::find(kWords, name, [](const auto& known) { return known.second; });
    if (!ordinal || !discarded || *discarded < 0 || *discarded > kMostTokens ||
        word == kWords.end() || is_final(word->first))
      return false;
    sums.open.push_back({.ordinal = *ordinal, .outcome = word->first, .discarded = *discarded});
  }
  return true;
}

LedgerTotals totals_from(const FieldReader& fields, int64_t step) {
  const auto number = [&fields](std::string_view name) {
    return fields.required().integer(name, 0, kMostOfARun).value_or(0);
  };
  return {.step = step,
          .next_ordinal = number("next_ordinal"),
          .open_prompts = number("open_prompts"),
          .generated = number("generated"),
          .pending = number("pending"),
          .discarded = number("discarded")};
}

std::optional<LedgerSums> sums_from(const json::object& object, const FieldReader& fields,
                                    int64_t position) {
  LedgerSums sums{.position = position};
  const json::value* ended = object.if_contains("ended");
  const json::value* open = object.if_contains("open");
  if (ended == nullptr || open == nullptr || !ended->is_array() || !open->is_array() ||
      !read_ended(ended->get_array(), sums) || !read_open(open->get_array(), sums) ||
      !read_four(object, "prompts", sums.prompts) || !read_four(object, "tokens", sums.tokens))
    return std::nullopt;
  sums.discarded = fields.required().integer("discarded", 0, kMostOfARun).value_or(0);
  sums.num_not_counted = fields.required().integer("not_counted", 0, kMostOfARun).value_or(0);
  sums.num_before = fields.required().integer("before", -kMostOfARun, kMostOfARun).value_or(0);
  if (const auto totals = fields.fields("totals"))
    sums.totals = totals_from(*totals, totals->required().integer("checkpoint", -1).value_or(-1));
  return sums;
}

std::optional<LedgerRecord> record_from(const FieldReader& fields) {
  const auto ordinal = fields.integer("ordinal");
  const std::string outcome = fields.text("fate").value_or("");
  const auto* word =
      std::ranges::find(kWords, outcome, [](const auto& entry) { return entry.second; });
  if (!ordinal || word == kWords.end()) return std::nullopt;
  return LedgerRecord{.ordinal = *ordinal,
                      .outcome = word->first,
                      .step = fields.integer("step").value_or(-1),
                      .reason = fields.text("reason").value_or(""),
                      .tokens = fields.integer("tokens", 0, kMostTokens),
                      .discarded = fields.integer("discarded", 0, kMostTokens).value_or(0)};
}

}  // namespace

std::string_view to_string(Outcome outcome) {
  for (const auto& [value, word] : kWords) {
    if (value == outcome) return word;
  }
  throw BugError("a outcome has no word");
}

std::string to_line(const LedgerEntry& entry) {
  return with_checksum(std::visit([](const auto& content) { return to_json(content); }, entry));
}

std::optional<LedgerEntry> parse_ledger_line(std::string_view line) {
  if (line.size() < kChecksumDigits + 1 || line[kChecksumDigits] != ' ') return std::nullopt;
  const std::string_view text = line.substr(kChecksumDigits + 1);
  if (fmt::format("{:08x}", crc32c(text)) != line.substr(0, kChecksumDigits)) return std::nullopt;
  const std::optional<json::value> value = try_parse_json(text);
  if (!value || !value->is_object()) return std::nullopt;
  std::vector<std::string> problems;
  const FieldReader fields(value->get_object(), "", problems);
  std::optional<LedgerEntry> entry;
  if (const auto position = fields.integer("rollback_to", 0)) {
    entry = Rollback{*position};
  } else if (const auto step = fields.integer("checkpoint", -1)) {
    entry = totals_from(fields, *step);
  } else if (const auto collected = fields.integer("collected_to", 1)) {
    if (auto sums = sums_from(value->get_object(), fields, *collected)) entry = *std::move(sums);
  } else {
    entry = record_from(fields);
  }
  if (!problems.empty()) return std::nullopt;
  return entry;
}

}  // namespace slime::buffer
