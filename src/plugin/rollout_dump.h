#pragma once

/// Rollout dumps of the original (torch.save files) beside JSON lines, converted in Python
/// (slime.checkpoints.rollout_dump), which runs nothing that a file names.

#include <filesystem>
#include <optional>

#include "core/temporary_folder.h"

namespace slime::plugin {

/// The file begins as torch.save writes it.
bool is_torch_file(const std::filesystem::path& path);

/// FILE.pt to FILE.jsonl, or back: the name of `to` says which. Runs $SLIME_PYTHON or python3, without packages.
/// Throws ConfigError with its words.
void convert_rollout_dump(const std::filesystem::path& from, const std::filesystem::path& to);

/// JSON lines of the dump in `path`, whatever its form: of a torch.save file they are in a folder that is
/// deleted with the object.
class ReadableDump final {
 public:
  explicit ReadableDump(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::optional<TemporaryFolder> folder_;
  std::filesystem::path path_;
};

}  // namespace slime::plugin
