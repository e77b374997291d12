// Bytes as the page of a data set and as names: what is selected is among the files that there are, and a name's parts
// stay what they are. Errors are ConfigErrors.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "hub/cache.h"
#include "hub/hub_name.h"
#include "hub/selection.h"

using namespace slime;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> files{"README.md", "data/test-1.csv", "data/train-1.parquet",
                                       "data/train-2.parquet", "main/x.jsonl"};
  // The first line is a word of the command line, the rest a page.
  const std::string word(text.substr(0, text.find('\n')));
  const std::string_view page = text.substr(std::min(size, word.size() + 1));
  try {
    hub::parse_hub_name(word, hub::Kind::kModel);
  } catch (const ConfigError&) {
  }
  try {
    auto name = hub::parse_hub_name(word, hub::Kind::kDataset);
    if (name && !name->part.empty() && !hub::is_safe_path(name->part)) std::abort();
    if (!name) name = hub::HubName{.kind = hub::Kind::kDataset, .repo = "a/b"};
    const auto selection = hub::files_of_data(*name, files, page, "train");
    if (selection.files.empty()) std::abort();
    for (const std::string& file : selection.files)
      if (std::find(files.begin(), files.end(), file) == files.end()) std::abort();
    if (hub::pattern_of(selection.files, files).empty()) std::abort();
  } catch (const ConfigError&) {  // the expected answer to most inputs
  }
  return 0;
}
