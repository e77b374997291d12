#include "model/foreign_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/shell_word.h"

namespace slime::model {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLooked = 4096;  // entries of a folder

/// A whole command: what it makes lies beside the checkpoint, so that the next message finds it.
std::string how_to_convert(const fs::path& folder, const std::string& model) {
  const std::string input = (folder / "").lexically_normal().parent_path().string();
  const std::string output = input + "-hf";
  constexpr std::string_view kIs =
      "a checkpoint of Megatron-LM (torch_dist), which is not read here";
  if (fs::exists(fs::path(output) / "config.json"))
    return fmt::format("{}; {} is what it was converted to: give that in its place", kIs, output);
  return fmt::format(
      "{}: convert it, python3 tools/convert_torch_dist_to_hf.py --input-dir {} --output-dir {} "
      "--origin-hf-dir {}, and give {} in its place",
      kIs, shell_word(input), shell_word(output), shell_word(model), output);
}

/// Whose files these are, and what to do; empty: nobody's that is known.
std::string form_of(const fs::path& folder, const std::string& model) {
  const auto has = [&](const char* name) { return fs::exists(folder / name); };
  std::error_code error;
  int looked = 0;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (++looked > kMostLooked) break;
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".distcp")) {
      return how_to_convert(folder, model);
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
  // Checkpoints of ours that hold an adapter are committed.
  if (has("adapter_config.json") && !has("config.json") && !has("COMMITTED")) {
    return "an adapter of PEFT, which has no weights of a model: give those as --hf-checkpoint, "
           "and it "
           "as --lora-adapter-path";
  }
  return {};
}

}  // namespace

std::string foreign_checkpoint(const fs::path& folder, const std::string& model) {
  const bool is_model =
      fs::exists(folder / "config.json") && (fs::exists(folder / "model.safetensors") ||
                                             fs::exists(folder / "model.safetensors.index.json"));
  if (is_model) return {};
  if (std::string form = form_of(folder, model); !form.empty()) return form;
  std::error_code error;
  int looked = 0;
  std::vector<fs::path> checkpoints;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (++looked > kMostLooked) break;
    const std::string name = entry.path().filename().string();
    if (name == "release" || name == "actor" || name.starts_with("iter_") ||
        name.starts_with("global_step"))
      checkpoints.push_back(entry.path());
  }
  // The newest first: iterations have as many digits each, and global_step99 is before global_step100.
  std::ranges::sort(checkpoints, [](const fs::path& a, const fs::path& b) {
    const std::string x = a.filename().string(), y = b.filename().string();
    return x.size() != y.size() ? x.size() > y.size() : x > y;
  });
  for (const fs::path& each : checkpoints) {
    if (std::string form = form_of(each, model); !form.empty()) return form;
    if (std::string form = form_of(each / "actor", model); !form.empty()) return form;
  }
  return {};
}

}  // namespace slime::model
