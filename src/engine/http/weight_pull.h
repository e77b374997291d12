#pragma once

/// Versions of a checkpoint that a trainer writes into a folder, copied to where a server reads them:
///
///   SOURCE/weight_v000007/  config.json, model*.safetensors, ...   ->   LOCAL/ the same files
///                                                                       LOCAL/.weight_sync/state.json
///
/// A version that is the difference to another one (delta metadata in its index) is refused.

#include <cstdint>
#include <filesystem>
#include <string>

namespace slime::engine {

/// Returns what was done. Afterwards LOCAL has that version whole, file by file by renaming; after an error
/// its state names none, so that nobody takes a mixture for a version. One call at a time, also of several
/// servers with one folder. Throws ConfigError.
std::string pull_weights(const std::filesystem::path& source, const std::filesystem::path& local,
                         std::int64_t version);

}  // namespace slime::engine
