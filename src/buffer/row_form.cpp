#include "buffer/row_form.h"

#include <array>
#include <string_view>

namespace slime::buffer {

const char* const kKnownForms =
    "should end in .jsonl, .json or .csv (perhaps with .gz or .zst behind it), .parquet or .arrow";

std::string FileForm::arrow_name() const {
  switch (form) {
    case RowForm::kParquet:
      return "parquet";
    case RowForm::kArrow:
      return "arrow";
    case RowForm::kCsv:
      return packing.empty() ? "csv" : "csv." + packing;
    default:
      return "";
  }
}

std::optional<FileForm> form_of(const std::filesystem::path& path) {
  const std::string whole = path.filename().string();
  std::string_view name = whole;
  FileForm form;
  for (const char* packing : {"gz", "zst"}) {
    const std::string ending = std::string(".") + packing;
    if (!form.packing.empty() || !name.ends_with(ending)) continue;
    form.packing = packing;
    name.remove_suffix(ending.size());
  }
  static constexpr auto kForms = std::to_array<std::pair<std::string_view, RowForm>>({
      {".jsonl", RowForm::kJsonLines},
      {".ndjson", RowForm::kJsonLines},
      {".json", RowForm::kJson},
      {".csv", RowForm::kCsv},
      {".parquet", RowForm::kParquet},
      {".arrow", RowForm::kArrow},
  });
  for (const auto& [ending, each] : kForms) {
    if (!name.ends_with(ending)) continue;
    form.form = each;
    const bool is_whole = each == RowForm::kParquet || each == RowForm::kArrow;
    if (is_whole && !form.packing.empty()) return std::nullopt;  // they are packed inside
    return form;
  }
  return std::nullopt;
}

}  // namespace slime::buffer
