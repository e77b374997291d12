#include "cli/by_name.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/run_model.h"
#include "cluster/launch_environment.h"
#include "config/eval_config.h"
#include "core/draft_words.h"
#include "core/error.h"
#include "hub/names_like.h"

namespace slime::cli {
namespace {

using std::chrono::steady_clock;

constexpr double kMebibyte = 1024.0 * 1024.0;

/// A line that is redrawn on a terminal; elsewhere one every ten seconds and one at the end.
class DownloadLine {
 public:
  explicit DownloadLine(std::string whose)
      : whose_(std::move(whose)), is_terminal_(::isatty(STDERR_FILENO) != 0) {}

  void show(const hub::Transfer& transfer) {
    const auto now = steady_clock::now();
    if (transfer.what != what_) {  // another repository
      what_ = transfer.what;
      begin_ = last_ = now;
      fmt::print(stderr, "{}: downloading {}: {} files, {:.1f} MiB\n", whose_, what_,
                 transfer.num_files, static_cast<double>(transfer.bytes_total) / kMebibyte);
    }
    const auto interval = is_terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10);
    if (!transfer.is_over && now - last_ < interval) return;
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const double rate = static_cast<double>(transfer.bytes_come) / std::max(seconds, 1e-3);
    std::string line =
        fmt::format("{}: {}: {:.1f} of {:.1f} MiB, {:.1f} MiB/s", whose_, what_,
                    static_cast<double>(transfer.bytes_done) / kMebibyte,
                    static_cast<double>(transfer.bytes_total) / kMebibyte, rate / kMebibyte);
    if (!transfer.is_over && rate > 0) {
      line += fmt::format(", {:.0f} s left ({})",
                          static_cast<double>(transfer.bytes_total - transfer.bytes_done) / rate,
                          transfer.file);
    }
    if (is_terminal_)
      fmt::print(stderr, "\r{}\033[K{}", line, transfer.is_over ? "\n" : "");
    else
      fmt::print(stderr, "{}\n", line);
    std::fflush(stderr);
    if (transfer.is_over) what_.clear();
  }

 private:
  std::string whose_, what_;
  bool is_terminal_;
  steady_clock::time_point begin_, last_;
};

/// A run stands for its newest checkpoint, RUN@STEP for that one. Others come back as they are.
std::string checkpoint_of_run(const std::string& path, const std::string& whose) {
  const auto run = run_model(path);
  if (!run) return path;
  fmt::print(stderr, "{}: {} is a run; its checkpoint is {}\n", whose, path,
             run->checkpoint.string());
  return run->checkpoint.string();
}

/// Names that may also be folders of checkpoints are names only with hf:// before them.
void find_model(config::Flag<std::string>& flag, const char* name, bool needs_url,
                hub::Wanted wanted, const hub::Hub& hub, std::vector<std::string>& absent) {
  const std::string word = flag.peek();
  if (word.empty() || (needs_url && !hub::is_url_of_hub(word))) return;
  std::string found = hub.model(word, wanted, name);
  if (found != word)
    flag = std::move(found);
  else if (hub::name_not_path(word, hub::Kind::kModel))
    absent.push_back(name + (" " + word));
}

std::string find_data(const std::string& word, std::string_view split, const std::string& flag,
                      const hub::Hub& hub, std::vector<std::string>& absent) {
  std::string found = hub.data(word, split, flag);
  if (found == word && hub::name_not_path(word, hub::Kind::kDataset))
    absent.push_back(flag + " " + word);
  return found;
}

/// None for a file that validation refuses.
std::vector<std::string> paths_of_eval_config(const config::RunConfig& config) {
  std::vector<std::string> paths;
  try {
    for (const json::object& set : config::eval_set_records(config)) {
      const json::value* path = set.if_contains("path");
      if (path != nullptr && path->is_string()) paths.emplace_back(path->get_string());
    }
  } catch (const ConfigError&) {
    paths.clear();
  }
  return paths;
}

}  // namespace

hub::Hub open_hub(const std::string& whose, bool may_download, bool refresh) {
  const auto line = std::make_shared<DownloadLine>(whose);
  return hub::Hub({.settings = hub::settings_of(cluster::own_environment),
                   .may_download = may_download,
                   .refresh = refresh,
                   .on_transfer = [line](const hub::Transfer& transfer) { line->show(transfer); },
                   .say =
                       [whose](const std::string& sentence) {
                         fmt::print(stderr, "{}: {}\n", whose, sentence);
                       }});
}

std::string guess_of_model(const std::string& word) {
  std::error_code unknown;
  if (word.empty() || std::filesystem::exists(word, unknown)) return "";
  if (hub::name_not_path(word, hub::Kind::kModel)) return "";  // the hub says more
  return hub::model_guess(word, hub::settings_of(cluster::own_environment).cache);
}

std::string model_by_name(const std::string& word, hub::Wanted wanted, std::string_view flag,
                          const std::string& whose) {
  if (!hub::name_not_path(word, hub::Kind::kModel)) {
    std::string path = checkpoint_of_run(word, whose);
    if (const std::string guess = guess_of_model(path); !guess.empty())
      throw ConfigError(fmt::format("{} {}: no such file or directory{}", flag, word, guess));
    return path;
  }
  return open_hub(whose).model(word, wanted, flag);
}

std::string name_of_word(const std::string& word) {
  const auto name = hub::parse_hub_name(word, hub::Kind::kModel);
  return name ? name->text() : word;
}

void find_names(config::ParsedFlags& flags, hub::Wanted wanted, bool may_download,
                const std::string& whose) {
  config::RunConfig& config = flags.config;
  const hub::Hub hub = open_hub(whose, may_download);
  std::vector<std::string> absent;
  find_model(config.hf_checkpoint, "--hf-checkpoint", false, wanted, hub, absent);
  if (std::string found = checkpoint_of_run(config.hf_checkpoint.peek(), whose);
      found != config.hf_checkpoint.peek())
    config.hf_checkpoint = std::move(found);
  config.model_guess = guess_of_model(config.hf_checkpoint.peek());
  find_model(config.ref_load, "--ref-load", true, wanted, hub, absent);
  find_model(config.load, "--load", true, wanted, hub, absent);
  find_model(config.critic_load, "--critic-load", true, wanted, hub, absent);
  find_model(config.opd_teacher_load, "--opd-teacher-load", true, wanted, hub, absent);
  const bool drafts =
      config.names_draft_model() || draft_word_of(config.sglang_speculative_algorithm.peek(),
                                                  /*has_model=*/true) == DraftWord::kModel;
  if (drafts && config.device.peek() == "cpu")
    find_model(config.rollout_draft_model, "--rollout-draft-model", false, wanted, hub, absent);
  if (wanted != hub::Wanted::kConfig) {
    std::vector<std::string> paths = config.prompt_data.peek();
    for (std::string& path : paths) path = find_data(path, "train", "--prompt-data", hub, absent);
    if (paths != config.prompt_data.peek()) config.prompt_data = std::move(paths);
    // Pairs of name and path; a path alone is that of "aime".
    std::vector<std::string> pairs = config.eval_prompt_data.peek();
    for (std::size_t i = pairs.size() == 1 ? 0 : 1; i < pairs.size(); i += 2)
      pairs[i] = find_data(pairs[i], "test", "--eval-prompt-data", hub, absent);
    if (pairs != config.eval_prompt_data.peek()) config.eval_prompt_data = std::move(pairs);
    if (!config.eval_config.peek().empty()) {
      for (const std::string& path : paths_of_eval_config(config)) {
        std::string found = find_data(path, "test", "--eval-config", hub, absent);
        if (found != path) config.found_paths[path] = std::move(found);
      }
    }
  }
  for (const std::string& each : absent)
    flags.warnings.push_back(each +
                             ": is not in the cache of Hugging Face; a run would download it");
}

}  // namespace slime::cli
