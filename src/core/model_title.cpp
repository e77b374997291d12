#include "core/model_title.h"

#include <string_view>

namespace slime {

std::string model_title(const std::filesystem::path& directory) {
  std::filesystem::path path = directory.lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  const std::filesystem::path snapshots = path.parent_path();
  const std::string repo = snapshots.parent_path().filename().string();
  constexpr std::string_view kBegin = "models--", kBetween = "--";
  const std::size_t last = repo.rfind(kBetween);
  if (snapshots.filename() == "snapshots" && repo.starts_with(kBegin) && last >= kBegin.size())
    return repo.substr(last + kBetween.size());
  return path.filename().string();
}

}  // namespace slime
