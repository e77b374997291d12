#pragma once

/// Names of models and data sets on Hugging Face's hub, as users write them where a path could stand.
///
///   Qwen/Qwen3-0.6B                     a model
///   Qwen/Qwen3-0.6B@v1.1                at a branch, tag or commit
///   openai/gsm8k:train[:1000]           a data set: the first thousand rows of a split
///   openai/gsm8k:socratic/test          the split of a configuration
///   owner/name:data/rows.parquet        a file
///   hf://Qwen/Qwen3-0.6B, hf://datasets/openai/gsm8k:train     where a path could be meant
///
/// Paths come before names: a word is a name only if there is nothing under it as a path,
/// and its first part is no folder here.

#include <optional>
#include <string>
#include <string_view>

namespace slime::hub {

enum class Kind { kModel, kDataset };

struct HubName {
  Kind kind = Kind::kModel;
  std::string repo;      // "openai/gsm8k"
  std::string revision;  // empty: main
  std::string part;      // "train", "main/train", "data/rows.parquet"; empty: not said
  std::string slice;     // "[:1000]", with Python's indices; empty: all

  /// "openai/gsm8k@v1", without part and slice.
  std::string text() const;
};

/// Whether a word begins with hf://, so that no path is meant.
bool is_url_of_hub(std::string_view word);

/// The name that a word of this kind is, by its form alone; nothing: it is none, so it is a path.
/// Throws ConfigError for hf:// with something else behind it.
std::optional<HubName> parse_hub_name(std::string_view word, Kind kind);

/// The same with a look at the file system: nothing where a path is meant.
std::optional<HubName> name_not_path(std::string_view word, Kind kind);

}  // namespace slime::hub
