#pragma once

/// The files that a word of --prompt-data stands for: one file, all data files below a folder, or those that a
/// pattern matches ("data/train-*.parquet", "{a,b}.jsonl").

#include <filesystem>
#include <string>
#include <vector>

namespace slime::buffer {

/// Whether there is something under a word, its slice left out.
bool has_data_files(const std::string& text);

/// In order of their names. What lies there under the word itself wins over its meaning as a pattern.
/// Throws ConfigError where there is nothing of the kind.
std::vector<std::filesystem::path> data_files(const std::string& path);

}  // namespace slime::buffer
