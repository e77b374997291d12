#include "model/foreign_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

namespace slime::model {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLooked = 4096;  // entries of a folder

/// What form the folder itself has; empty: none that is known.
std::string form_of(const fs::path& folder) {
  std::error_code error;
  int looked = 0;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (++looked > kMostLooked) break;
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".distcp")) return "torch_dist";
    if (name.starts_with("mp_rank_") && fs::exists(entry.path() / "model_optim_rng.pt"))
      return "torch";
  }
  return {};
}

}  // namespace

std::string foreign_checkpoint(const fs::path& folder) {
  std::string form = form_of(folder);
  std::error_code error;
  int looked = 0;
  if (form.empty() && fs::is_directory(folder, error)) {
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (++looked > kMostLooked || !form.empty()) break;
      const std::string name = entry.path().filename().string();
      if (name == "release" || name.starts_with("iter_")) form = form_of(entry.path());
    }
  }
  if (form.empty()) return {};
  return fmt::format(
      "a checkpoint of Megatron-LM ({}), which is not read here: convert it to a Hugging Face "
      "directory (the original's convert_torch_dist_to_hf.py) and give that as "
      "--hf-checkpoint",
      form);
}

}  // namespace slime::model
