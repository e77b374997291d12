#pragma once

/// The form of a file of rows, by the end of its name: "a.jsonl", "a.json.gz", "a.csv.zst", "a.parquet",
/// "a.arrow".

#include <filesystem>
#include <optional>
#include <string>

namespace slime::buffer {

enum class RowForm {
  kJsonLines,  // one object a line
  kJson,       // a list of objects, or objects one after the other
  kCsv,        // the first line has the names; all fields are texts
  kParquet,
  kArrow,  // IPC, as a file or as a stream
};

struct FileForm {
  RowForm form = RowForm::kJsonLines;
  std::string packing;  // "gz" or "zst"; empty: none

  /// Arrow's name of it: "csv.gz"; empty where Arrow is not what reads it.
  std::string arrow_name() const;
  bool needs_arrow() const { return !packing.empty() || !arrow_name().empty(); }
  /// What its rows are counted in, for people: "line" (from 1) or "row" (from 0).
  const char* unit() const { return form == RowForm::kJsonLines ? "line" : "row"; }
};

/// Nothing: no form of rows.
std::optional<FileForm> form_of(const std::filesystem::path& path);

/// "should end in .jsonl, ...".
extern const char* const kKnownForms;

}  // namespace slime::buffer
