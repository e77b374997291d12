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
  } else {
    entry = record_from(fields);
  }
  if (!problems.empty()) return std::nullopt;
  return entry;
}

}  // namespace slime::buffer
