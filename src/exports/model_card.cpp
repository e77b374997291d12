#include "exports/model_card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/program_version.h"
#include "net/digest.h"
#include "report/run_files.h"

namespace slime::exports {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostRows = 12;  // of the curves' table

/// Flags of places and of speed: they did not decide what the model is.
const std::set<std::string, std::less<>>& left_out_flags() {
  static const std::set<std::string, std::less<>> kFlags{
      "--hf-checkpoint", "--prompt-data",   "--eval-prompt-data", "--run-dir", "--save",
      "--load",          "--ref-load",      "--critic-load",      "--device",  "--num-threads",
      "--overwrite",     "--save-interval", "--keep-checkpoints", "--dry-run", "--wandb-dir",
      "--kv-cache-gb"};
  return kFlags;
}

const json::value* find(const json::object& object, std::string_view name) {
  return object.if_contains(name);
}

const json::object& object_of(const json::object& object, std::string_view name) {
  static const json::object kNone;
  const json::value* value = find(object, name);
  return value != nullptr && value->is_object() ? value->get_object() : kNone;
}

std::string text_of(const json::value& value) {
  if (value.is_string()) return without_place(std::string(value.get_string()));
  if (value.is_bool()) return value.get_bool() ? "given" : "not given";
  if (value.is_array()) {
    std::vector<std::string> words;
    for (const json::value& word : value.get_array()) words.push_back(text_of(word));
    return fmt::format("{}", fmt::join(words, " "));
  }
  return value.is_double() ? fmt::format("{:g}", value.get_double()) : json_text(value);
}

std::vector<std::string> texts_of(const json::object& flags, std::string_view name) {
  std::vector<std::string> texts;
  const json::value* value = find(flags, name);
  if (value == nullptr) return texts;
  if (value->is_string()) texts.emplace_back(value->get_string());
  if (value->is_array())
    for (const json::value& word : value->get_array())
      if (word.is_string()) texts.emplace_back(word.get_string());
  return texts;
}

/// A cell of a Markdown table.
std::string cell(std::string text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string line_of_data(const std::string& path, const std::string& use) {
  fs::path file = path;
  const std::size_t slice = path.rfind("@[");
  if (slice != std::string::npos) file = path.substr(0, slice);
  std::string line = fmt::format("- {}: `{}`", use, without_place(path));
  std::error_code none;
  if (fs::is_regular_file(file, none))
    line += fmt::format(", SHA-256 `{}`", net::sha256_of_file(file));
  return line + "\n";
}

std::string data_section(const json::object& flags, const json::object& checkpoint) {
  std::string text;
  for (const std::string& path : texts_of(flags, "--prompt-data"))
    text += line_of_data(path, "training");
  const std::vector<std::string> sets = texts_of(flags, "--eval-prompt-data");
  for (std::size_t i = 0; i + 1 < sets.size(); i += 2)
    text += line_of_data(sets[i + 1], "evaluation " + sets[i]);
  const json::object& source = object_of(checkpoint, "data_source");
  if (const json::value* sum = find(source, "fingerprint"); sum != nullptr && sum->is_number())
    text += fmt::format("- rows that were read for training: CRC-32C `{:08x}`\n",
                        sum->to_number<uint32_t>());
  return text.empty() ? "" : "## Data\n\n" + text + "\n";
}

std::string settings_section(const json::object& flags) {
  std::string rows;
  for (const auto& flag : flags)
    if (!left_out_flags().contains(flag.key()))
      rows +=
          fmt::format("| `{}` | {} |\n", std::string_view(flag.key()), cell(text_of(flag.value())));
  if (rows.empty()) return "";
  return "## Settings\n\nFlags of `slime train` that differ from the defaults.\n\n| flag | value "
         "|\n| --- | --- |\n" +
         rows + "\n";
}

/// "eval/gsm8k", but not eval/gsm8k/response_len/mean nor eval/gsm8k-failed.
bool is_score(const std::string& name) {
  constexpr std::string_view kBegin = "eval/";
  if (!name.starts_with(kBegin)) return false;
  const std::string_view rest = std::string_view(name).substr(kBegin.size());
  if (rest.find('/') != std::string_view::npos) return false;
  for (const std::string_view end : {"-failed", "-too_long", "-truncated_ratio"})
    if (rest.ends_with(end)) return false;
  return true;
}

std::string curves_section(const fs::path& run, int64_t last_step) {
  const report::RunMetrics metrics = report::read_metrics(run / "metrics.jsonl", 1 << 20);
  constexpr std::array<std::string_view, 4> kCurves{"rollout/raw_reward", "train/loss",
                                                    "train/ppo_kl", "rollout/response_len/mean"};
  std::vector<std::string> names;
  for (const std::string_view curve : kCurves)
    if (metrics.series.contains(std::string(curve))) names.emplace_back(curve);
  for (const auto& [name, series] : metrics.series)
    if (is_score(name)) names.push_back(name);
  std::map<int64_t, std::map<std::string, double>> rows;
  for (const std::string& name : names) {
    const report::MetricSeries& series = metrics.series.at(name);
    for (std::size_t i = 0; i < series.steps.size(); ++i)
      if (series.steps[i] <= last_step && std::isfinite(series.values[i]))
        rows[series.steps[i]][name] = series.values[i];
  }
  if (rows.empty()) return "";
  std::string text = "## How it went\n\n| step |";
  std::string rule = "| --- |";
  for (const std::string& name : names) {
    text += fmt::format(" {} |", name);
    rule += " --- |";
  }
  text += "\n" + rule + "\n";
  std::vector<int64_t> steps;
  for (const auto& [step, values] : rows) steps.push_back(step);
  const std::size_t count = std::min(kMostRows, steps.size());
  for (std::size_t i = 0; i < count; ++i) {  // evenly, the first and the last among them
    const std::size_t place = count == 1 ? 0 : i * (steps.size() - 1) / (count - 1);
    text += fmt::format("| {} |", steps[place]);
    for (const std::string& name : names) {
      const auto found = rows[steps[place]].find(name);
      text += found == rows[steps[place]].end() ? " |" : fmt::format(" {:.4g} |", found->second);
    }
    text += "\n";
  }
  return text + "\n";
}

std::string rewards_of(const json::object& flags) {
  std::vector<std::string> rewards;
  for (const char* flag : {"--rm-type", "--custom-rm-path"})
    for (const std::string& word : texts_of(flags, flag)) rewards.push_back(without_place(word));
  return fmt::format("{}", fmt::join(rewards, ", "));
}

std::string use_section(const std::string& title) {
  return fmt::format(
      "## Use\n\n```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
      "model = AutoModelForCausalLM.from_pretrained(\"{0}\")\n"
      "tokenizer = AutoTokenizer.from_pretrained(\"{0}\")\n```\n\n"
      "`slime chat {0}`, `slime serve --model {0}` and `vllm serve {0}` take the same folder.\n",
      title);
}

/// The name of a model in the hub's cache: models--OWNER--NAME somewhere in the path.
std::optional<std::string> name_in_cache(std::string_view path) {
  constexpr std::string_view kCached = "models--";
  const std::size_t begin = path.find(kCached);
  if (begin == std::string_view::npos) return std::nullopt;
  std::string name(path.substr(begin + kCached.size()));
  name.erase(std::min(name.size(), name.find('/')));
  if (const std::size_t owner = name.find("--"); owner != std::string::npos)
    name.replace(owner, 2, "/");
  return name;
}

std::string last_part(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return std::string(path.substr(path.rfind('/') + 1));
}

}  // namespace

std::string without_place(std::string_view word) {
  if (word.find("://") != std::string_view::npos) {
    const std::string_view scheme = word.substr(0, word.find("://"));
    if (scheme == "hf") return std::string(word);
    return "(an address)";
  }
  if (const auto name = name_in_cache(word)) return *name;
  std::error_code none;
  const bool is_place = word.starts_with('/') || word.starts_with("./") ||
                        word.starts_with("../") || word.starts_with('~') ||
                        (word.find('/') != std::string_view::npos && fs::exists(word, none));
  return is_place ? last_part(word) : std::string(word);
}

std::string model_card(const CardOf& of) {
  std::vector<std::string> problems;
  json::object run, checkpoint;
  if (!of.run.empty()) run = report::read_run_record(of.run / "run.json", problems);
  const json::object& flags = object_of(run, "flags");
  const json::value* model = find(run, "model");
  // A run names the directory of its model; others know only a name in the hub's cache.
  const std::string directory =
      model != nullptr && model->is_string() ? std::string(model->get_string()) : "";
  const std::optional<std::string> published = name_in_cache(directory);
  const std::string base = published ? *published : last_part(directory);
  std::string text = "---\nlibrary_name: transformers\npipeline_tag: text-generation\n";
  if (published) text += fmt::format("base_model: {}\n", *published);
  text += "tags:\n- slime\n---\n\n";
  text += fmt::format("# {}\n\n", of.title);
  if (of.run.empty()) {
    text += fmt::format("Written by slime {}{}.\n\n", program_version(),
                        of.precision.empty() ? "" : " in " + of.precision);
    return text + use_section(of.title);
  }
  const std::string loss = texts_of(run, "loss_type").empty() ? "" : texts_of(run, "loss_type")[0];
  text += fmt::format("Trained from {} with slime {}: the weights after rollout step {}{}.\n\n",
                      base.empty() ? "an unnamed model" : "`" + base + "`", program_version(),
                      of.step, of.precision.empty() ? "" : ", written in " + of.precision);
  if (!loss.empty()) text += fmt::format("- objective: `{}`\n", loss);
  if (const std::string rewards = rewards_of(flags); !rewards.empty())
    text += fmt::format("- reward: `{}`\n", rewards);
  if (const json::value* dtype = find(run, "dtype"); dtype != nullptr && dtype->is_string())
    text += fmt::format("- trained in {}\n", std::string_view(dtype->get_string()));
  if (const json::value* count = find(run, "num_parameters");
      count != nullptr && count->is_number())
    text += fmt::format("- {:.4g} million parameters\n", count->to_number<double>() / 1e6);
  text += "\n";
  std::error_code none;
  const fs::path latest = fs::canonical(of.run / "latest", none);
  if (!none) checkpoint = report::read_run_record(latest / "run.json", problems);
  return text + data_section(flags, object_of(checkpoint, "run")) + settings_section(flags) +
         curves_section(of.run, of.step) + use_section(of.title);
}

}  // namespace slime::exports
