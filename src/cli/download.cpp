#include "cli/download.h"

#include <fmt/format.h>

#include <vector>

#include "cli/by_name.h"
#include "cli/options.h"
#include "core/error.h"
#include "hub/hub_name.h"

namespace slime::cli {
namespace {

/// A word with a colon, or below hf://datasets/, is a data set.
hub::Kind kind_of(const std::string& word, bool are_data) {
  const bool has_part = !hub::is_url_of_hub(word) && word.find(':') != std::string::npos;
  return are_data || has_part || word.starts_with("hf://datasets/") ? hub::Kind::kDataset
                                                                    : hub::Kind::kModel;
}

}  // namespace

int download(std::span<const std::string> arguments) {
  std::vector<std::string> names;
  bool are_data = false, only_text = false;
  CLI::App app(
      "Models and data sets of Hugging Face's hub into its cache (HF_HOME), where slime and other "
      "tools find them.\nPrints the path of each. Asks for the newest commit, goes on where an "
      "earlier download broke off,\nand checks every file's checksum. HF_TOKEN, HF_ENDPOINT and "
      "HF_HUB_OFFLINE are read (docs/names.md).\n\n"
      "  slime download Qwen/Qwen3-0.6B\n"
      "  slime download openai/gsm8k:train hf://datasets/openai/gsm8k:test",
      "slime download");
  app.add_option("NAME", names, "OWNER/NAME, OWNER/NAME@REVISION; of a data set OWNER/NAME:SPLIT")
      ->required();
  app.add_flag("--data", are_data, "the names are of data sets");
  app.add_flag("--without-weights", only_text, "configuration and tokenizer of models alone");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;

  const hub::Hub hub = open_hub("slime download", /*may_download=*/true, /*refresh=*/true);
  for (const std::string& word : names) {
    const hub::Kind kind = kind_of(word, are_data);
    if (!hub::name_not_path(word, kind)) {
      throw ConfigError(
          fmt::format("{}: is a path here, or no name; hf://{}OWNER/NAME is always one", word,
                      kind == hub::Kind::kModel ? "" : "datasets/"));
    }
    const std::string path =
        kind == hub::Kind::kModel
            ? hub.model(word, only_text ? hub::Wanted::kText : hub::Wanted::kModel, "NAME")
            : hub.data(word, "train", "NAME");
    fmt::print("{}\n", path);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace slime::cli
