#pragma once

/// File of the samples of an evaluation, which a further start of the same command goes on with.
///
///   FILE.jsonl            one sample a line (core/sample.h, to_json) with "eval_set"; groups are appended whole
///   FILE.jsonl.settings   what decides the samples: flags, fingerprints of the data, files of the model
///
/// When it is opened, a line that a dying process left half-written is taken out, and so are groups that are not
/// whole or have a failed sample: they are drawn again.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "buffer/append_file.h"
#include "core/json.h"
#include "core/sample.h"

namespace slime::evaluate {

class SampleFile final {
 public:
  /// Reads what is there. Throws ConfigError where that is of an evaluation with other settings, and says which
  /// they are, or no such file at all.
  SampleFile(std::filesystem::path path, const json::object& settings);

  const std::filesystem::path& path() const { return path_; }
  /// Groups of a set that were there.
  std::vector<Group> done(const std::string& set) const;
  int64_t num_done() const;

  /// Appends a group. Throws ConfigError when it cannot.
  void add(const std::string& set, const Group& group);

 private:
  void check_settings(const json::object& settings) const;
  void read();

  const std::filesystem::path path_;
  std::map<std::string, std::vector<Group>> groups_;  // that were there, by set
  std::unique_ptr<buffer::AppendFile> file_;
};

}  // namespace slime::evaluate
