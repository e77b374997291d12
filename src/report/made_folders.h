#pragma once

/// Folders that a start of a run makes. When the run is refused before it begins, they go again: somebody
/// who mistyped a flag is not left with a folder for each attempt.

#include <filesystem>
#include <system_error>
#include <vector>

namespace slime::report {

class MadeFolders {
 public:
  /// `proof`: a file that a run writes when it begins.
  explicit MadeFolders(std::filesystem::path proof) : proof_(std::move(proof)) {}
  /// Without the proof, removes the folders that were made and hold nothing but locks and empty logs;
  /// parents that were made for them when they are empty. The locks must still be held: a process
  /// that has opened one is refused, and one that comes later makes a folder of its own.
  ~MadeFolders();
  MadeFolders(const MadeFolders&) = delete;
  MadeFolders& operator=(const MadeFolders&) = delete;

  /// As create_directories().
  void make(const std::filesystem::path& folder, std::error_code& error);

 private:
  const std::filesystem::path proof_;
  std::vector<std::filesystem::path> parents_;  // that were missing, each behind its own parent
  std::vector<std::filesystem::path> folders_;  // the same, of those that were asked for
};

}  // namespace slime::report
