#pragma once

/// The name of a model for people, from the path of its directory.

#include <filesystem>
#include <string>

namespace slime {

/// "Qwen3-0.6B" for a directory of Hugging Face's cache (.../models--Qwen--Qwen3-0.6B/snapshots/c1899de2...); the
/// folder's own name for others.
std::string model_title(const std::filesystem::path& directory);

}  // namespace slime
