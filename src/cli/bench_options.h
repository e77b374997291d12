#pragma once

/// Options that several measurements of `slime bench` have.

#include <cstdint>
#include <span>
#include <string>

#include "bench/engine.h"
#include "bench/made_up_model.h"
#include "cli/options.h"

namespace slime::cli {

using Arguments = std::span<const std::string>;

inline void add_count(CLI::App& app, const char* name, int64_t& value, const char* text) {
  app.add_option(name, value, text)->capture_default_str()->check(CLI::PositiveNumber);
}

/// `which`: of the runs counts.
inline void add_repeats(CLI::App& app, int& repeats, const char* which) {
  app.add_option("--repeats", repeats, which)->capture_default_str()->check(CLI::Range(1, 1000));
}

inline void add_workloads_file(CLI::App& app, std::string& file) {
  app.add_option("--workloads-file", file, "Where the models' shapes are")->capture_default_str();
}

inline void add_shape(CLI::App& app, bench::ShapeOptions& shape) {
  app.add_option("--model", shape.model, "A shape in the file of workloads")->capture_default_str();
  add_workloads_file(app, shape.file);
}

/// A measurement in the shape qwen3-`size`, by its whole name.
template <typename Options>
inline void name_shape(CLI::App& app, Options& options, const std::string& name,
                       const std::string& size) {
  options.name = name;
  options.shape.model = "qwen3-" + size;
  add_workloads_file(app, options.shape.file);
}

inline void add_model(CLI::App& app, bench::ModelOptions& model) {
  app.add_option("--model", model.directory, "Model directory")->required();
  app.add_option("--dtype", model.dtype, "bfloat16, float16 or float32")->capture_default_str();
  app.add_flag("--random-weights", model.random_weights,
               "Fresh weights in the shape of the directory's config.json");
  app.add_option("--threads", model.threads, "Threads; 0: all cores")->capture_default_str();
}

inline void add_prefill(CLI::App& app, int64_t& max_prefill_tokens) {
  app.add_option("--chunked-prefill-size", max_prefill_tokens, "Prompt tokens per step")
      ->capture_default_str();
}

}  // namespace slime::cli
