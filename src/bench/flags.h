#pragma once

/// Flags that several measurements have. A description of bench/measurements.json sets them too.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/arguments.h"
#include "bench/clone_file.h"
#include "bench/draft_options.h"
#include "bench/machine.h"
#include "bench/made_up_model.h"
#include "bench/rank_processes.h"
#include "cli/options.h"

namespace slime::bench {

/// Of one measurement, which was asked for as `name`.
class Flags final : public CLI::App {
 public:
  Flags(const std::string& what, const std::string& name) : CLI::App(what, "slime bench " + name) {}

  /// Any value of its type.
  template <typename T>
  CLI::Option* add(const char* flag, T& value, const char* text) {
    return add_option(flag, value, text)->capture_default_str();
  }
  void count(const char* flag, int64_t& value, const char* text) {
    add(flag, value, text)->check(CLI::PositiveNumber);
  }
  template <typename T>
  void range(const char* flag, T& value, double low, double high, const char* text) {
    add(flag, value, text)->check(CLI::Range(low, high));
  }
  /// Words or numbers, separated by commas.
  template <typename T>
  CLI::Option* list(const char* flag, std::vector<T>& values, const char* text) {
    return add(flag, values, text)->delimiter(',');
  }
  /// `which`: of the runs counts.
  void repeats(int& value, const char* which) { range("--repeats", value, 1, 1000, which); }
  void device(std::string& value, const char* text) {
    add("--device", value, text)->check(CLI::IsMember({"cpu", "cuda"}));
  }
  void drafts(DraftOptions& options) {
    constexpr int kMostDrafts = 15;
    CLI::Option* most =
        add("--drafts", options.most,
            "Drafts of each sequence in a step, at most; 0: none, one token a step");
    most->check(CLI::Range(0, kMostDrafts));
    add("--acceptance", options.acceptance,
        "Chance that a draft counts as right where those before it do, whatever is drawn")
        ->check(CLI::Range(0.0, 1.0))
        ->needs(most);
    add_flag("--draft-always", options.always,
             "As many drafts in each step, also where they cost more than they save")
        ->needs(most);
  }
  void prefill(int64_t& value) { add("--chunked-prefill-size", value, "Prompt tokens per step"); }

  /// A made-up model of the file of workloads.
  void shape(ShapeOptions& options) {
    add("--model", options.model, "A shape in the file of workloads");
    workloads_file(options.file);
  }
  void workloads_file(std::string& file) {
    file = file_of_clone(file);
    add("--workloads-file", file, "Where the models' shapes are");
  }
  /// A model on the disk.
  void model(ModelOptions& options) {
    add_option("--model", options.directory, "Model directory")->required();
    add("--dtype", options.dtype, "bfloat16, float16 or float32");
    add_flag("--random-weights", options.random_weights,
             "Fresh weights in the shape of the directory's config.json");
    add("--threads", options.threads, "Threads; 0: all cores");
  }
  /// Several ranks, which this command starts with the same `arguments`.
  void ranks(RankOptions& options, const std::string& name, Arguments arguments, const char* text) {
    add("--layout", options.layout, text);
    add_option("--rank", options.rank)->group("");
    add_option("--port", options.port)->group("");
    options.command = {name};
    options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  }

  /// Nothing when all arguments were taken; otherwise the exit code (cli/options.h).
  std::optional<int> take(Arguments arguments) { return cli::parse_options(*this, arguments); }
};

}  // namespace slime::bench
