#include "hub/hub_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.h"

namespace slime::hub {
namespace {

constexpr std::string_view kScheme = "hf://";
constexpr std::string_view kDatasets = "datasets/";
constexpr std::size_t kLongestPart = 96;  // of a name, as the hub has it
constexpr std::size_t kLongestRevision = 256;

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_word(std::string_view text, std::string_view others, std::size_t longest) {
  return !text.empty() && text.size() <= longest && is_letter_or_digit(text.front()) &&
         std::ranges::all_of(text, [&](char c) {
           return is_letter_or_digit(c) || others.find(c) != std::string_view::npos;
         });
}

/// No part of it is empty, "." or "..".
bool is_clean_path(std::string_view path) {
  while (true) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

bool is_repo(std::string_view text) {
  const std::size_t slash = text.find('/');
  return slash != std::string_view::npos && is_word(text.substr(0, slash), "-._", kLongestPart) &&
         is_word(text.substr(slash + 1), "-._", kLongestPart);
}

bool looks_like_file(std::string_view word) {
  constexpr auto kEndings = std::to_array<std::string_view>(
      {".jsonl", ".json", ".parquet", ".csv", ".arrow", ".gz", ".zst", ".txt", ".tsv", ".yaml"});
  return std::ranges::any_of(kEndings,
                             [&](std::string_view ending) { return word.ends_with(ending); });
}

bool is_position(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// Cuts "[a:b]" or "@[a:b]" off the end of a word.
std::string take_slice(std::string_view& word) {
  const std::size_t open = word.rfind('[');
  if (open == std::string_view::npos || !word.ends_with(']')) return "";
  const std::string_view inside = word.substr(open + 1, word.size() - open - 2);
  const std::size_t colon = inside.find(':');
  if (colon == std::string_view::npos || !is_position(inside.substr(0, colon)) ||
      !is_position(inside.substr(colon + 1)))
    return "";
  std::string slice(word.substr(open));
  word = word.substr(0, open);
  if (word.ends_with('@')) word.remove_suffix(1);
  return slice;
}

}  // namespace

std::string HubName::text() const { return revision.empty() ? repo : repo + "@" + revision; }

bool is_url_of_hub(std::string_view word) { return word.starts_with(kScheme); }

std::optional<HubName> parse_hub_name(std::string_view word, Kind kind) {
  const std::string_view whole = word;
  const bool is_url = is_url_of_hub(word);
  if (is_url) word.remove_prefix(kScheme.size());
  HubName name{.kind = kind, .repo = "", .revision = "", .part = "", .slice = ""};
  bool is_of_kind = true;
  if (is_url) {
    const bool is_data = word.starts_with(kDatasets);
    if (is_data) word.remove_prefix(kDatasets.size());
    is_of_kind = is_data == (kind == Kind::kDataset);
  }
  if (kind == Kind::kDataset) {
    name.slice = take_slice(word);
    if (const std::size_t colon = word.find(':'); colon != std::string_view::npos) {
      name.part = word.substr(colon + 1);
      word = word.substr(0, colon);
      is_of_kind = is_of_kind && is_clean_path(name.part);
    }
  }
  if (const std::size_t at = word.find('@'); at != std::string_view::npos) {
    name.revision = word.substr(at + 1);
    word = word.substr(0, at);
    is_of_kind = is_of_kind && is_word(name.revision, "-._/", kLongestRevision) &&
                 is_clean_path(name.revision);
  }
  name.repo = word;
  // "prompts/train.jsonl" is a file that is not here, not an owner and a data set.
  const bool is_file =
      !is_url && kind == Kind::kDataset && name.part.empty() && looks_like_file(word);
  if (is_of_kind && is_repo(word) && !is_file) return name;
  if (!is_url) return std::nullopt;
  throw ConfigError(
      fmt::format("{}: should be {}", whole,
                  kind == Kind::kModel
                      ? "hf://OWNER/NAME, with @REVISION behind it where another than main is meant"
                      : "hf://datasets/OWNER/NAME:SPLIT, perhaps with [BEGIN:END] behind it"));
}

std::optional<HubName> name_not_path(std::string_view word, Kind kind) {
  auto name = parse_hub_name(word, kind);
  if (!name || is_url_of_hub(word)) return name;
  std::error_code error;
  const std::filesystem::path path(word);
  if (std::filesystem::exists(path, error) || std::filesystem::exists(*path.begin(), error))
    return std::nullopt;
  return name;
}

}  // namespace slime::hub
