#pragma once

/// A new folder for temporary files, removed with its object.

#include <filesystem>
#include <string>

namespace slime {

class TemporaryFolder final {
 public:
  /// NAME-XXXXXX in the system's folder of temporary files, for this user alone. Throws ConfigError.
  explicit TemporaryFolder(const std::string& name);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// It outlives the object.
  void keep() { is_kept_ = true; }
  /// At once, for an end of the process that calls no destructors.
  void remove() const noexcept;

 private:
  std::filesystem::path path_;
  bool is_kept_ = false;
};

}  // namespace slime
