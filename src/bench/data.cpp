#include "bench/data.h"

#include <sys/resource.h>

#include <filesystem>

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

}  // namespace

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

}  // namespace slime::bench
