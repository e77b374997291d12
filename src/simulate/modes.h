#pragma once

/// Predicted runs on given devices: the modes of training side by side, each simulated with a cost
/// model. A prediction, as good as its rates.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "simulate/process.h"

namespace slime::simulate {

/// Lengths of responses in tokens.
struct LogNormalLengths {
  double median = 800;
  double sigma = 1.0;  // of the logarithm
};

struct ModesConfig {
  int64_t num_devices = 2;
  int64_t num_trainers = 1;  // of those, where trainers and engines have devices of their own
  int64_t prompts_per_step = 64;
  int64_t samples_per_prompt = 8;
  int64_t num_steps = 20;
  int64_t prompt_tokens = 256;
  int64_t max_response = 8192;
  LogNormalLengths lengths;
  std::vector<int64_t> lengths_of_file;  // not empty: they are sampled from these
  int64_t max_running = 256;             // samples, per engine
  int64_t kv_tokens = 700'000;           // per engine
  int64_t max_staleness = 1;
  estimate::CostModel cost;  // `train_per_token` is of one trainer
  uint64_t seed = 42;
};

struct Prediction {
  std::string mode;
  int64_t num_engines = 1;
  int64_t num_trainers = 1;
  bool takes_turns = false;  // trainers and engines are the same devices
  Figures figures;

  double steps_per_hour() const;
  double groups_per_second() const;
  double trained_tokens_per_second() const;
  double mean_lag() const;  // in updates, over trained tokens
  // Shares of time in which nothing is computed.
  double trainers_idle() const;
  double engines_idle() const;
  double devices_idle() const;
};

/// Throws ConfigError for devices that cannot be divided so, or a cache that cannot hold a request.
void check_modes(const ModesConfig& config);

/// Needs at least one trainer and one engine among the devices for the modes that split them; with
/// one device those are left out. `ledger`: a file that may be overwritten.
/// `on_mode` is told of each before it is simulated, which may take minutes.
using OnMode = std::function<void(std::string_view mode, std::size_t number, std::size_t all)>;
std::vector<Prediction> predict(const ModesConfig& config, const std::filesystem::path& ledger,
                                const OnMode& on_mode = {});

/// One number per line. Throws ConfigError.
std::vector<int64_t> read_lengths(const std::filesystem::path& path);

/// For people, with the rates that it follows from.
std::string to_table(const std::vector<Prediction>& predictions, const ModesConfig& config);

}  // namespace slime::simulate
