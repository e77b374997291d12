#include "bench/made_up_directory.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <fstream>
#include <string>

#include "bench/flags.h"
#include "bench/workload.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"
#include "core/json_lines.h"
#include "model/save.h"
#include "text/tokenizer/byte_tokenizer.h"

namespace slime::bench {
namespace fs = std::filesystem;

void write_made_up_model(const ShapeOptions& shape, const fs::path& folder, bool has_weights) {
  const model::ModelConfig config = read_shape(shape);
  fs::create_directories(folder);
  if (has_weights) {
    const auto network = make_up_network_on_host(config, at::kBFloat16, kTrainingWeightBound);
    model::save_network(*network, folder);
  } else {
    std::ofstream(folder / "config.json")
        << json_text(read_workloads(shape.file).models.at(shape.model));
  }
  std::ofstream(folder / "tokenizer.json") << json_text(text::byte_tokenizer());
}

MadeUpDirectory::MadeUpDirectory(const MadeUpDirectoryOptions& options) {
  write_made_up_model(options.shape, model(), options.has_weights);
  std::ofstream file(prompts());
  for (int64_t i = 0; i < options.prompts; ++i) {
    std::string text = fmt::format("Prompt {}: ", i);
    while (static_cast<int64_t>(text.size()) < options.prompt_tokens)
      text += static_cast<char>('a' + (i * 7 + static_cast<int64_t>(text.size()) * 13) % 26);
    file << json_text(json::object{{"input", text}}) << "\n";
  }
}

int made_up_model(const std::string& name, Arguments arguments) {
  ShapeOptions shape;
  std::string folder;
  Flags flags("Writes a model directory with made-up weights, for commands that are measured.",
              name);
  flags.shape(shape);
  flags.add_option("--out", folder, "The directory; new, or empty")->required();
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  if (fs::exists(folder) && (!fs::is_directory(folder) || !fs::is_empty(folder)))
    throw ConfigError(fmt::format("--out {}: is there already", folder));
  const SystemClock clock;
  const auto start = clock.now();
  write_made_up_model(shape, folder, /*has_weights=*/true);
  write_json_line({{"name", name},
                   {"value", seconds_between(start, clock.now())},
                   {"unit", "s"},
                   {"model", shape.model},
                   {"out", folder}});
  return 0;
}

}  // namespace slime::bench
