#include "model/foreign_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

namespace slime::model {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLooked = 4096;  // entries of a folder

/// Whose files these are, and what to do; empty: nobody's that is known.
std::string form_of(const fs::path& folder) {
  const auto has = [&](const char* name) { return fs::exists(folder / name); };
  std::error_code error;
  int looked = 0;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (++looked > kMostLooked) break;
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".distcp")) {
      return fmt::format(
          "a checkpoint of Megatron-LM (torch_dist), which is not read here: convert it (python3 "
          "tools/convert_torch_dist_to_hf.py --input-dir {} --output-dir DIR --origin-hf-dir "
          "MODEL) and give DIR as --hf-checkpoint",
          folder.string());
    }
    if (name.starts_with("mp_rank_") && fs::exists(entry.path() / "model_optim_rng.pt")) {
      return "a checkpoint of Megatron-LM (torch), which is not read here: save it there with "
             "--ckpt-format torch_dist, and convert that (tools/convert_torch_dist_to_hf.py)";
    }
    if (name == "zero_to_fp32.py" || name.ends_with("_optim_states.pt")) {
      return "a checkpoint of DeepSpeed, which is not read here: make a model directory of it "
             "(its own zero_to_fp32.py, with --safe_serialization) and give that as "
             "--hf-checkpoint";
    }
    if (name.starts_with("model_world_size_") && name.ends_with(".pt")) {
      return "a checkpoint of verl (FSDP), which is not read here: merge it (python3 -m "
             "verl.model_merger merge --backend fsdp) and give the result as --hf-checkpoint";
    }
  }
  if (has("adapter_config.json") && !has("config.json")) {
    return "an adapter of PEFT, which is not read here: merge it into its model "
           "(merge_and_unload, save_pretrained) and give that as --hf-checkpoint";
  }
  return {};
}

}  // namespace

std::string foreign_checkpoint(const fs::path& folder) {
  const bool is_model =
      fs::exists(folder / "config.json") && (fs::exists(folder / "model.safetensors") ||
                                             fs::exists(folder / "model.safetensors.index.json"));
  if (is_model) return {};
  if (std::string form = form_of(folder); !form.empty()) return form;
  std::error_code error;
  int looked = 0;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (++looked > kMostLooked) break;
    const std::string name = entry.path().filename().string();
    if (name != "release" && name != "actor" && !name.starts_with("iter_") &&
        !name.starts_with("global_step"))
      continue;
    if (std::string form = form_of(entry.path()); !form.empty()) return form;
    if (std::string form = form_of(entry.path() / "actor"); !form.empty()) return form;
  }
  return {};
}

}  // namespace slime::model
