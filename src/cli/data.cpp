#include "cli/data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "buffer/data_source.h"
#include "cli/by_name.h"
#include "cli/options.h"
#include "config/parse_flags.h"
#include "core/calendar.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/safe_text.h"
#include "report/shown_tokens.h"
#include "report/terminal.h"
#include "setup/prompts.h"
#include "setup/supervised.h"

namespace slime::cli {
namespace {

/// One row as it is shown.
struct ShownRow {
  std::string title;  // "row 0"
  std::string text;
  std::string label;
};

/// Lengths of all rows in tokens, and the first rows themselves.
struct View {
  std::vector<int64_t> tokens, trained;
  std::vector<ShownRow> rows;
};

std::string label_text(const json::value& label) {
  if (label.is_null()) return "";
  return safe_text(label.is_string() ? std::string(label.get_string()) : json_text(label));
}

View view_of_prompts(const buffer::Dataset& dataset, const setup::ModelText& text,
                     int64_t num_shown, bool has_color) {
  View view;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const Prompt prompt = dataset.prompt(i);
    view.tokens.push_back(static_cast<int64_t>(prompt.tokens.size()));
    if (i >= num_shown) continue;
    std::string shown = prompt.tokens.empty()
                            ? safe_text(prompt.text)
                            : report::shown_tokens(prompt.tokens, {}, *text.tokenizer, has_color);
    view.rows.push_back({fmt::format("row {}, {} tokens", i, prompt.tokens.size()),
                         std::move(shown), label_text(prompt.label)});
  }
  return view;
}

/// Tokens that are trained and those before them.
View view_of_rows(const buffer::Dataset& dataset, const config::RunConfig& config,
                  const setup::ModelText& text, int64_t num_shown, bool has_color) {
  const setup::SupervisedRows rows(config, text);
  buffer::DataSource source(&dataset, {.samples_per_prompt = config.is_preference() ? 2 : 1});
  View view;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    for (Group& group : source.take(1)) {
      if (rows.complete(group)) continue;  // left out: counted by the data set
      const char* side = "";
      for (const Sample& sample : group.samples) {
        if (config.is_preference()) side = side[0] == '\0' ? ", chosen" : ", rejected";
        std::vector<uint8_t> mask(static_cast<std::size_t>(sample.prompt_length), 0);
        mask.insert(mask.end(), sample.loss_mask.begin(), sample.loss_mask.end());
        const auto trained = std::ranges::count_if(mask, [](uint8_t each) { return each != 0; });
        view.tokens.push_back(static_cast<int64_t>(sample.tokens.size()));
        view.trained.push_back(trained);
        if (i >= num_shown) continue;
        view.rows.push_back(
            {fmt::format("row {}{}, {} tokens, {} trained", i, side, sample.tokens.size(), trained),
             report::shown_tokens(sample.tokens, mask, *text.tokenizer, has_color), ""});
      }
    }
  }
  return view;
}

void print_lengths(const char* what, std::vector<int64_t> counts) {
  if (counts.empty()) return;
  std::ranges::sort(counts);
  const auto at = [&](std::size_t percent) { return counts[(counts.size() - 1) * percent / 100]; };
  fmt::print("{:<12}{} to {}, half up to {}, 95% up to {}\n", what, counts.front(), counts.back(),
             at(50), at(95));
}

void print_view(const buffer::Dataset& dataset, const View& view, bool has_color, bool trains) {
  fmt::print("{:<12}{}\n", "rows", dataset.size());
  if (!dataset.schema().empty()) fmt::print("{:<12}{}\n", "read as", safe_text(dataset.schema()));
  print_lengths("tokens", view.tokens);
  print_lengths("trained", view.trained);
  if (dataset.num_too_long() > 0)
    fmt::print("{:<12}{} prompts longer than --rollout-max-prompt-len\n", "left out",
               dataset.num_too_long());
  if (!dataset.left_out().empty())
    fmt::print("{:<12}{}\n", "left out", safe_text(buffer::words_of_left_out(dataset.left_out())));
  if (trains)
    fmt::print("{:<12}{}\n", "shown",
               has_color ? "what is trained in green; neighbouring tokens differ in brightness"
                         : "what is trained in [[ ]]");
  for (const ShownRow& row : view.rows) {
    fmt::print("\n{}{}{}\n{}\n", has_color ? "\033[1m" : "-- ", row.title,
               has_color ? "\033[0m" : "", row.text);
    if (!row.label.empty())
      fmt::print("{}label:{} {}\n", has_color ? "\033[1m" : "", has_color ? "\033[0m" : "",
                 row.label);
  }
}

}  // namespace

int data(std::span<const std::string> arguments) {
  // Words before the first flag are files: behind it they may be values of flags that CLI11 does not know.
  const auto end_of_files = std::ranges::find_if(
      arguments, [](const std::string& word) { return word.starts_with('-'); });
  const std::vector<std::string> files(arguments.begin(), end_of_files);
  int64_t num_shown = 3;
  CLI::App app(
      "The rows of files, or of a data set of the hub, as a run would read them: the first ones as "
      "the model sees them,\nlengths, and how many are left out and why. Takes the flags of slime "
      "train that say how rows are read:\n--hf-checkpoint (which is needed), --input-key, "
      "--label-key, --apply-chat-template, --loss-type sft_loss, ... Files come before flags.\n\n"
      "  slime data rows.jsonl --hf-checkpoint Qwen/Qwen3-0.6B --input-key prompt\n"
      "  slime data openai/gsm8k:train[:1000] --hf-checkpoint Qwen/Qwen3-0.6B "
      "--apply-chat-template",
      "slime data");
  app.allow_extras();
  app.add_option("--rows", num_shown, "how many are shown")
      ->check(CLI::Range(0, 10'000))
      ->capture_default_str();
  if (const auto exit_code = parse_options(app, std::span(end_of_files, arguments.end())))
    return *exit_code;
  config::ParsedFlags flags = config::parse_flags(app.remaining());
  std::vector<std::string> problems = flags.problems;
  for (const auto& unknown : flags.unknown_flags) problems.push_back(unknown.text());
  config::RunConfig& config = flags.config;
  if (config.hf_checkpoint.peek().empty())
    problems.emplace_back(
        "--hf-checkpoint: missing; the model whose tokenizer and template read the rows");
  if (!files.empty()) config.prompt_data = files;
  if (config.prompt_data.peek().empty()) problems.emplace_back("FILE: missing; a file of rows");
  if (!problems.empty()) throw ConfigError(problems);
  find_names(flags, hub::Wanted::kText, /*may_download=*/true, "slime data");

  const setup::ModelText text = setup::load_model_text(
      config.hf_checkpoint, config.apply_chat_template || config.trains_on_rows(),
      std::chrono::floor<std::chrono::days>(local_time(SystemClock().unix_seconds())));
  const buffer::Dataset dataset = setup::load_prompts(config, text);
  const bool has_color = report::detect_terminal().has_color;
  const View view = config.trains_on_rows()
                        ? view_of_rows(dataset, config, text, num_shown, has_color)
                        : view_of_prompts(dataset, text, num_shown, has_color);
  print_view(dataset, view, has_color, config.trains_on_rows());
  return 0;
}

}  // namespace slime::cli
