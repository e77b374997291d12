/// How long a prompt file takes to load as `slime train` loads it (rows, chat template, tokens),
/// and how much memory it keeps.

#include <sys/resource.h>

#include <filesystem>

#include "bench/flags.h"
#include "config/run_config.h"
#include "core/calendar.h"
#include "core/clock.h"
#include "core/json_lines.h"
#include "setup/prompts.h"

namespace slime::bench {
namespace {

/// The most memory this process has had in RAM, in bytes.
double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

void measure_data(const config::RunConfig& config) {
  const setup::ModelText text = setup::load_model_text(
      config.hf_checkpoint, config.apply_chat_template,
      std::chrono::floor<std::chrono::days>(local_time(SystemClock().unix_seconds())));
  const SystemClock clock;
  const double before = peak_bytes();
  const auto start = clock.now();
  const buffer::Dataset dataset = setup::load_prompts(config, text);
  const double seconds = seconds_between(start, clock.now());
  const auto file_bytes =
      static_cast<double>(std::filesystem::file_size(config.prompt_data.front()));
  const double memory = peak_bytes() - before;
  write_json_line({{"benchmark", "data"},
                   {"rows", dataset.size()},
                   {"file_mb", file_bytes / 1e6},
                   {"seconds", seconds},
                   {"rows_per_second", static_cast<double>(dataset.size()) / seconds},
                   {"peak_memory_mb", memory / 1e6},
                   {"memory_over_file", memory / file_bytes}});
}

}  // namespace

int data(const std::string& name, Arguments arguments) {
  config::RunConfig config;
  std::string path;
  Flags flags("Loads a prompt file as `slime train` does: rows, chat template, tokens.", name);
  flags.add_option("--model", config.hf_checkpoint, "Model directory")->required();
  flags.add_option("--data", path, "JSON-lines or Parquet file")->required();
  flags.add_option("--input-key", config.input_key, "Field with the prompt");
  flags.add_flag("--apply-chat-template", config.apply_chat_template, "Render messages");
  flags.add_option("--threads", config.num_data_workers, "0: all cores");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  config.prompt_data = {path};
  measure_data(config);
  return 0;
}

}  // namespace slime::bench
