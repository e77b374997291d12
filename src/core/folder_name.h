#pragma once

/// Last name of a folder's path: "model" of "models/model/", and that of the working directory for ".".

#include <filesystem>
#include <string>

namespace slime {

/// Links are not followed. Empty for the root.
std::string folder_name(const std::filesystem::path& folder);

}  // namespace slime
