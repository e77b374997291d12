#include "cli/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/options.h"
#include "cli/run_model.h"
#include "core/error.h"
#include "core/folder_name.h"
#include "exports/export_model.h"
#include "exports/model_card.h"
#include "model/adapter_config.h"
#include "model/adapter_files.h"
#include "model/safetensors.h"

namespace slime::cli {
namespace {

namespace fs = std::filesystem;

/// Throws ConfigError for a place in the folder of checkpoints, which is the run's own.
void require_outside_checkpoints(const fs::path& out, const fs::path& checkpoints) {
  const fs::path path = fs::weakly_canonical(fs::absolute(out));
  const fs::path root = fs::weakly_canonical(checkpoints);
  if (std::ranges::mismatch(root, path).in1 == root.end())
    throw ConfigError(fmt::format(
        "{}: is below {}, which holds the run's checkpoints; name a place outside of it",
        out.string(), checkpoints.string()));
}

uint64_t bytes_below(const fs::path& folder) {
  uint64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

}  // namespace

int export_model(std::span<const std::string> arguments) {
  std::string word, dtype, base;
  bool merges = false;
  fs::path out;
  CLI::App app(
      "The model of a run as a directory of its own: config, weights, tokenizer, generation "
      "settings and a card of how it was trained; nothing of the run.\n\n  slime export runs/first "
      "my-model\n  slime export runs/first@120 my-model-fp8 --dtype fp8",
      "slime export");
  app.add_option("RUN", word,
                 "a run directory: its newest checkpoint, RUN@120 that of step 120; or a model "
                 "directory")
      ->required();
  app.add_option("OUT", out, "the new directory; one that is there is not replaced")->required();
  app.add_option("--dtype", dtype,
                 "bf16, fp32 (from the optimizer's master weights where they are saved), or fp8 "
                 "(float8 e4m3 in blocks of 128 x 128); default: as saved");
  app.add_flag("--merge", merges, "merge the adapter of RUN into a copy of its model, in float32");
  app.add_option("--model", base,
                 "with --merge: the model, where it is not where the adapter says");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  if (out.empty()) throw ConfigError("OUT: should be the new directory, is empty");
  const exports::ExportPrecision precision = exports::export_precision(dtype);
  const std::optional<RunModel> run = run_model(word);
  if (run) require_outside_checkpoints(out, run->checkpoint.parent_path());
  const fs::path source = run ? run->checkpoint : model_of_word(word, "slime export").directory;
  const bool has_adapter = model::has_adapter(source);
  if (merges != has_adapter) {
    throw ConfigError(fmt::format("{}: {}", word,
                                  merges ? "holds no adapter, so there is nothing to --merge"
                                         : "holds an adapter; --merge merges it into its model"));
  }
  if (merges && base.empty()) base = model::read_adapter_config(source).base_model;
  if (merges && !fs::exists(fs::path(base) / "config.json"))
    throw ConfigError(
        fmt::format("{}: its model \"{}\" is not there; name it with --model", word, base));
  exports::CardOf card{.title = folder_name(out), .precision = dtype};
  if (run) {
    card.run = run->run;
    card.step = run->step;
  }
  exports::make_whole(out, [&](const fs::path& target) {
    merges ? exports::export_merged(base, source, target, precision)
           : exports::export_model(source, target, precision);
    model::write_file(target / "README.md", exports::model_card(card));
  });
  fmt::print("{}: {:.1f} MB{}\n", out.string(), static_cast<double>(bytes_below(out)) / 1e6,
             run ? fmt::format(", of rollout step {}", run->step) : "");
  fmt::print("GGUF: python3 llama.cpp/convert_hf_to_gguf.py {0} --outfile {0}.gguf\n",
             out.string());
  return 0;
}

}  // namespace slime::cli
