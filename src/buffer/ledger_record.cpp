#include "buffer/ledger_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/field_reader.h"

namespace slime::buffer {
namespace {

constexpr std::array<std::pair<Fate, std::string_view>, 7> kWords{
    {{Fate::kDispatched, "dispatched"},
     {Fate::kPartial, "partial"},
     {Fate::kScored, "scored"},
     {Fate::kTrained, "trained"},
     {Fate::kSkipped, "skipped"},
     {Fate::kFiltered, "filtered"},
     {Fate::kFailed, "failed"}}};
constexpr std::size_t kChecksumDigits = 8;
constexpr std::size_t kReasonLimit = 1000;  // of a failure's text, in bytes

std::string with_checksum(const json::object& object) {
  const std::string text = json::serialize(object);
  return fmt::format("{:08x} {}\n", crc32c(text), text);
}

/// Cut at a character, so that the line stays UTF-8.
std::string_view shortened(std::string_view reason) {
  if (reason.size() <= kReasonLimit) return reason;
  std::size_t end = kReasonLimit;
  while (end > 0 && (static_cast<uint8_t>(reason[end]) & 0xc0U) == 0x80U) --end;
  return reason.substr(0, end);
}

/// Nothing for a line that this program did not write.
std::optional<std::variant<LedgerRecord, Rollback>> parse_line(std::string_view line) {
  if (line.size() < kChecksumDigits + 1 || line[kChecksumDigits] != ' ') return std::nullopt;
  const std::string_view text = line.substr(kChecksumDigits + 1);
  if (fmt::format("{:08x}", crc32c(text)) != line.substr(0, kChecksumDigits)) return std::nullopt;
  json::error_code error;
  const json::value value = json::parse(text, error);
  if (error || !value.is_object()) return std::nullopt;
  std::vector<std::string> problems;
  const FieldReader fields(value.get_object(), "", problems);
  if (const auto position = fields.integer("rollback_to")) return Rollback{*position};

  const auto ordinal = fields.integer("ordinal");
  const std::string fate = fields.text("fate").value_or("");
  const auto* word =
      std::ranges::find(kWords, fate, [](const auto& entry) { return entry.second; });
  LedgerRecord record;
  if (!ordinal || word == kWords.end()) return std::nullopt;
  record.ordinal = *ordinal;
  record.fate = word->first;
  record.step = fields.integer("step").value_or(-1);
  record.reason = fields.text("reason").value_or("");
  return record;
}

}  // namespace

std::string_view to_string(Fate fate) {
  for (const auto& [value, word] : kWords) {
    if (value == fate) return word;
  }
  throw BugError("a fate has no word");
}

std::string to_line(const LedgerRecord& record) {
  json::object object{{"ordinal", record.ordinal}, {"fate", to_string(record.fate)}};
  if (record.step >= 0) object["step"] = record.step;
  if (!record.reason.empty()) object["reason"] = shortened(record.reason);
  return with_checksum(object);
}

std::string to_line(const Rollback& rollback) {
  return with_checksum({{"rollback_to", rollback.position}});
}

LedgerLines read_ledger_lines(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw ConfigError(fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
  LedgerLines result;
  std::string line;
  bool is_damaged = false;
  while (std::getline(file, line)) {
    const bool has_end = !file.eof();
    const auto bytes = static_cast<int64_t>(line.size()) + (has_end ? 1 : 0);
    std::optional<std::variant<LedgerRecord, Rollback>> content;
    if (has_end) content = parse_line(line);
    if (content && is_damaged) result.has_line_after_damage = true;
    if (!content) is_damaged = true;
    if (!is_damaged) {
      result.lines.push_back({result.file_bytes, std::move(*content)});
      result.whole_bytes += bytes;
    }
    result.file_bytes += bytes;
  }
  if (file.bad())
    throw ConfigError(fmt::format("{}: read error at byte {}", path.string(), result.file_bytes));
  return result;
}

std::vector<LedgerRecord> effective_records(const std::vector<LedgerLine>& lines, int64_t position,
                                            int64_t* num_rolled_back) {
  const auto line_at = [&lines](int64_t begin) {
    return std::lower_bound(
               lines.begin(), lines.end(), begin,
               [](const LedgerLine& line, int64_t wanted) { return line.begin < wanted; }) -
           lines.begin();
  };
  // Backwards from the end: a rollback leads to the position before which records count again, over
  // later rollbacks that were undone themselves.
  const auto end = line_at(position);
  std::vector<LedgerRecord> records;
  for (auto i = end; i > 0;) {
    const LedgerLine& line = lines[static_cast<std::size_t>(--i)];
    if (const auto* rollback = std::get_if<Rollback>(&line.content)) {
      i = std::min(i, line_at(rollback->position));
    } else {
      records.push_back(std::get<LedgerRecord>(line.content));
    }
  }
  std::reverse(records.begin(), records.end());
  if (num_rolled_back != nullptr) {
    const auto num_records = std::count_if(
        lines.begin(), lines.begin() + end,
        [](const LedgerLine& line) { return std::holds_alternative<LedgerRecord>(line.content); });
    *num_rolled_back = num_records - static_cast<int64_t>(records.size());
  }
  return records;
}

std::string violation(const LedgerState& state, const LedgerRecord& record) {
  const auto found = state.find(record.ordinal);
  if (found == state.end()) {
    if (record.fate == Fate::kDispatched) return {};
    return fmt::format("prompt {}: {} without being dispatched", record.ordinal,
                       to_string(record.fate));
  }
  const LedgerRecord& before = found->second;
  if (!is_final(before.fate)) return {};
  const auto at_step = [](const LedgerRecord& of) {
    return of.step >= 0 ? fmt::format(" at step {}", of.step) : "";
  };
  return fmt::format("prompt {}: {}{} after it was {}{}", record.ordinal, to_string(record.fate),
                     at_step(record), to_string(before.fate), at_step(before));
}

}  // namespace slime::buffer
