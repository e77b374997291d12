#include "cli/bench_data.h"

#include <sys/resource.h>

#include <filesystem>

#include "cli/json_lines.h"
#include "cli/options.h"
#include "core/calendar.h"
#include "core/clock.h"
#include "loop/prompts.h"

namespace slime::cli {
namespace {

/// The most memory this process has had in RAM, in bytes.
double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace

int bench_data(std::span<const std::string> arguments) {
  CLI::App app("Loads a prompt file as `slime train` does: rows, chat template, tokens.",
               "slime bench data");
  config::RunConfig config;
  std::string path;
  app.add_option("--model", config.hf_checkpoint, "Model directory")->required();
  app.add_option("--data", path, "JSON-lines or Parquet file")->required();
  app.add_option("--input-key", config.input_key, "Field with the prompt");
  app.add_flag("--apply-chat-template", config.apply_chat_template, "Render messages");
  app.add_option("--threads", config.num_data_workers, "0: all cores");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  config.prompt_data = {path};

  const loop::ModelText text = loop::load_model_text(
      config.hf_checkpoint, config.apply_chat_template,
      std::chrono::floor<std::chrono::days>(local_time(SystemClock().unix_seconds())));
  const SystemClock clock;
  const double before = peak_bytes();
  const auto start = clock.now();
  const buffer::Dataset dataset = loop::load_prompts(config, text);
  const double seconds = seconds_between(start, clock.now());
  const auto file_bytes = static_cast<double>(std::filesystem::file_size(path));
  const double memory = peak_bytes() - before;
  write_json_line({{"benchmark", "data"},
                   {"rows", dataset.size()},
                   {"file_mb", file_bytes / 1e6},
                   {"seconds", seconds},
                   {"rows_per_second", static_cast<double>(dataset.size()) / seconds},
                   {"peak_memory_mb", memory / 1e6},
                   {"memory_over_file", memory / file_bytes}});
  return 0;
}

}  // namespace slime::cli
