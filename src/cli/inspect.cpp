#include "cli/inspect.h"

/// slime inspect: what a model directory, a checkpoint or a safetensors file holds, and what is
/// wrong with it.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "cli/by_name.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/safe_text.h"
#include "model/adapter_files.h"
#include "model/config.h"
#include "model/model_files.h"
#include "model/network.h"

namespace slime::cli {
namespace {

using model::StoredTensor;

constexpr double kMebibyte = 1024.0 * 1024.0;

int64_t count(const StoredTensor& tensor) {
  int64_t n = 1;
  for (const int64_t size : tensor.shape) n *= size;
  return n;
}

void print_tensor(const std::string& name, const StoredTensor& tensor) {
  fmt::print("  {:<56} {:<5} [{}]\n", safe_text(name), model::safetensors_dtype(tensor.dtype),
             fmt::join(tensor.shape, ", "));
}

void print_totals(const std::map<std::string, StoredTensor>& tensors) {
  std::map<std::string, std::pair<int64_t, uint64_t>> by_dtype;  // numbers, bytes
  int64_t numbers = 0;
  for (const auto& [name, tensor] : tensors) {
    auto& [n, bytes] = by_dtype[model::safetensors_dtype(tensor.dtype)];
    n += count(tensor);
    bytes += tensor.end - tensor.begin;
    numbers += count(tensor);
  }
  fmt::print("tensors     {}\nnumbers     {} ({:.1f} million)\n", tensors.size(), numbers,
             static_cast<double>(numbers) * 1e-6);
  for (const auto& [dtype, sums] : by_dtype) {
    fmt::print("  stored as {:<5} {:>14} numbers {:>10.1f} MiB\n", dtype, sums.first,
               static_cast<double>(sums.second) / kMebibyte);
  }
}

/// Neighbouring blocks that are the same share their lines.
void print_blocks(std::span<const model::BlockNeeds> blocks, int64_t hidden_size) {
  for (std::size_t begin = 0, end = 0; begin < blocks.size(); begin = end) {
    const model::BlockNeeds& block = blocks[begin];
    while (end < blocks.size() && blocks[end].mixer == block.mixer &&
           blocks[end].feed_forward == block.feed_forward)
      ++end;
    fmt::print("layers      {} of hidden size {}, {}\n", end - begin, hidden_size,
               block.feed_forward);
    fmt::print("heads       {}\n", block.mixer);
  }
}

void print_network(model::Network& network) {
  const model::ModelConfig& config = network.config();
  const int64_t parameters = network.weights().num_parameters();
  fmt::print("family      {}\n", config.model_type);
  print_blocks(network.blocks(), config.hidden_size);
  fmt::print("vocabulary  {}{}\n", config.vocab_size,
             config.ties_embeddings ? ", output layer tied to the embedding" : "");
  fmt::print("positions   {}, rotary base {}\n", config.max_positions, config.rope.theta);
  const int64_t windowed =
      std::count_if(config.window.begin(), config.window.end(), [](int64_t w) { return w > 0; });
  if (windowed > 0)
    fmt::print("window      {} tokens on {} layers\n",
               *std::max_element(config.window.begin(), config.window.end()), windowed);
  fmt::print("end tokens  {}\n", fmt::join(config.eos_token_ids, ", "));
  const auto mebibytes = [&](double bytes) {
    return static_cast<double>(parameters) * bytes / kMebibyte;
  };
  fmt::print("parameters  {} ({:.1f} million)\n", parameters,
             static_cast<double>(parameters) * 1e-6);
  fmt::print("  weights in bfloat16 {:>10.1f} MiB, in float32 {:>10.1f} MiB\n", mebibytes(2),
             mebibytes(4));
  fmt::print(
      "  training in bfloat16 {:>9.1f} MiB: weights 2, gradient 4, master 4, moments 8 bytes "
      "each\n",
      mebibytes(18));
  int64_t kv = 0, states = 0;
  for (const model::BlockNeeds& block : network.blocks()) {
    kv += block.cache.numbers_per_token();
    states += block.cache.state_bytes;
  }
  fmt::print("  keys and values of one token {:.1f} KiB in bfloat16\n",
             static_cast<double>(kv) * 2 / 1024);
  if (states > 0)
    fmt::print("  state of one request {:.1f} KiB\n", static_cast<double>(states) / 1024);
}

int inspect_file(const std::string& path, bool lists_tensors) {
  const model::SafetensorsFile file(path);
  for (const auto& [key, value] : file.metadata())
    fmt::print("metadata    {} = {}\n", safe_text(key), safe_text(value));
  print_totals(file.tensors());
  if (lists_tensors) {
    for (const auto& [name, tensor] : file.tensors()) print_tensor(name, tensor);
  }
  return 0;
}

/// Everything is looked at even when the first part is broken; the problems come last.
int inspect_directory(const std::string& path, bool lists_tensors) {
  std::vector<std::string> problems;
  const auto attempt = [&](auto&& step) {
    try {
      step();
    } catch (const ConfigError& error) {
      problems.emplace_back(error.what());
    }
  };
  attempt([&] {
    const model::ModelFiles files(path);
    std::map<std::string, StoredTensor> tensors;
    for (const auto& [name, place] : files.tensors()) tensors.emplace(name, *place.tensor);
    fmt::print("files       {}\n", files.files().size());
    print_totals(tensors);
    if (lists_tensors) {
      for (const auto& [name, tensor] : tensors) print_tensor(name, tensor);
    }
  });
  attempt([&] {
    const auto config = model::read_model_config(path);
    const auto network = model::load_network(path, model::Precision::of(config.dtype));
    print_network(*network);
    if (!at::isfinite(network->weights().flat()).all().item<bool>()) {
      problems.push_back(path + ": some weights are not finite numbers");
    }
  });
  if (problems.empty()) {
    fmt::print("problems    none\n");
    return 0;
  }
  fmt::print("problems\n");
  for (const std::string& problem : problems) fmt::print("  {}\n", safe_text(problem));
  return 1;
}

int inspect_adapter(const std::string& path, const std::string& directory, bool lists_tensors) {
  const auto config = model::read_model_config(path);
  const model::AdapterFile file(directory, config);
  const model::AdapterForm& form = file.form();
  fmt::print("adapter     {} modules, {} saved whole\n", form.pairs.size(), form.saved.size());
  fmt::print("alpha       {}{}\n", form.config.alpha, form.config.uses_rslora ? ", rslora" : "");
  std::map<std::pair<int64_t, double>, int64_t> kinds;
  for (const auto& pair : form.pairs) ++kinds[{pair.rank, pair.scale}];
  for (const auto& [kind, count] : kinds)
    fmt::print("  rank {}, scale {:.4g}: {} modules\n", kind.first, kind.second, count);
  if (lists_tensors) {
    for (const auto& pair : form.pairs) fmt::print("  {:<56} rank {}\n", pair.module, pair.rank);
    for (const std::string& name : form.saved) fmt::print("  {:<56} whole\n", name);
  }
  const auto whole = model::load_network(path, model::Precision::of(config.dtype));
  model::add_adapters(*whole, form);
  file.read_into(*whole->adapters()->at(0));
  const model::Weights& weights = whole->trained();
  fmt::print("numbers     {}, of {} of the model\n", weights.num_parameters(),
             whole->weights().num_parameters());
  if (at::isfinite(weights.flat()).all().item<bool>()) {
    fmt::print("problems    none\n");
    return 0;
  }
  fmt::print("problems\n  {}: some numbers are not finite\n", directory);
  return 1;
}

}  // namespace

int inspect(std::span<const std::string> arguments) {
  CLI::App app(
      "Shows what a model directory, checkpoint or safetensors file holds. Exit code 1 when it has "
      "problems.",
      "slime inspect");
  std::string path, adapter;
  bool lists_tensors = false;
  app.add_option("PATH", path, "Directory or .safetensors file; or a model's name on the hub")
      ->required();
  app.add_option("--adapter", adapter, "PEFT directory of an adapter for the model at PATH");
  app.add_flag("--tensors", lists_tensors, "List every tensor");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  path = model_by_name(path, hub::Wanted::kModel, "PATH", "slime inspect");
  if (!std::filesystem::exists(path)) throw ConfigError(path + ": no such file or directory");
  if (!adapter.empty()) return inspect_adapter(path, adapter, lists_tensors);
  return std::filesystem::is_directory(path) ? inspect_directory(path, lists_tensors)
                                             : inspect_file(path, lists_tensors);
}

}  // namespace slime::cli
