#pragma once

/// Selection of the files of a repository that this program reads: never code and never pickle.

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "hub/cache.h"
#include "hub/hub_name.h"

namespace slime::hub {

/// The part of a model that is fetched.
enum class Wanted {
  kConfig,  // config.json
  kText,    // and what tokenizer, chat template and generation need
  kModel,   // and the weights
};

/// The files of a model, sorted by path. Throws ConfigError where it has none of what is wanted:
/// no config.json, or weights in other forms than safetensors.
std::vector<std::string> files_of_model(const HubName& name, const std::vector<std::string>& paths,
                                        Wanted wanted);

/// Whether rows can be read from a file of this name.
bool is_data_file(std::string_view path);

/// The page of a data set, whose head (YAML) may say which files are which split.
inline constexpr std::string_view kDataPage = "README.md";

struct DataSelection {
  std::vector<std::string> files;
  std::string note;  // what was chosen for the user, who did not say; empty: nothing
};

/// The files of what `name.part` names: a file, or a split ("train", "main/train"). Without a part the split is
/// `default_split` where there is one, or the only one. `page`: the text of kDataPage, or nothing. Throws
/// ConfigError that says what there is.
DataSelection files_of_data(const HubName& name, const std::vector<std::string>& paths,
                            std::string_view page, std::string_view default_split);

/// One pattern, with braces where it has to be, that matches these files of a folder and none of the
/// others in it: "main/train-*.parquet". Special characters of names are escaped.
std::string pattern_of(const std::vector<std::string>& files, const std::vector<std::string>& all);

/// A path as a pattern that matches it alone.
std::string escaped_pattern(std::string_view path);

}  // namespace slime::hub
