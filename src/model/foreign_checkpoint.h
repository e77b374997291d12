#pragma once

/// Checkpoints of other trainers, told by their files.

#include <filesystem>
#include <string>

namespace slime::model {

/// "a checkpoint of Megatron-LM (torch_dist) ...: convert it ..." where the folder, or the newest one of
/// checkpoints in it, is one; empty: it is not. `model`: the model directory that it was trained from, for
/// the command that converts it.
std::string foreign_checkpoint(const std::filesystem::path& folder,
                               const std::string& model = "MODEL");

}  // namespace slime::model
