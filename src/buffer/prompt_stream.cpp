#include "buffer/prompt_stream.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slime::buffer {
namespace {

constexpr std::size_t kAhead = 256;  // prompts that wait: a rollout step or two

}  // namespace

PromptStream::PromptStream(DatasetConfig config, RenderFn render, TokenizeFn tokenize)
    : config_(std::move(config)),
      render_(config_.apply_chat_template ? std::move(render) : nullptr),
      tokenize_(std::move(tokenize)) {
  if (config_.paths.empty()) throw ConfigError("--prompt-data: no file is given");
  files_ = open_paths(config_.paths);
  bool has_row = false;
  read_pass(0, [&](int64_t, const DataFingerprint&, Prompt) {
    has_row = true;
    return false;
  });
  if (!has_row) {
    throw ConfigError(
        "--streaming-data: the files have no row, or only prompts longer than "
        "--rollout-max-prompt-len");
  }
  start(0, 0);
}

PromptStream::~PromptStream() { stop(); }

void PromptStream::start(int64_t epoch, int64_t row) {
  ahead_ = std::make_unique<BoundedQueue<StreamedPrompt>>(kAhead);
  problem_ = nullptr;
  reader_ = std::jthread([this, epoch, row] { read(epoch, row); });
}

void PromptStream::stop() {
  if (ahead_ != nullptr) ahead_->close();
  if (reader_.joinable()) reader_.join();
}

void PromptStream::seek(int64_t epoch, int64_t row) {
  stop();
  start(epoch, row);
}

StreamedPrompt PromptStream::next() {
  std::optional<StreamedPrompt> prompt = ahead_->pop();
  if (prompt) return std::move(*prompt);
  reader_.join();
  if (problem_) std::rethrow_exception(problem_);
  throw BugError("a stream of prompts ends only with a problem");
}

void PromptStream::read(int64_t epoch, int64_t row) {
  try {
    for (bool is_open = true; is_open; ++epoch, row = 0) {
      const int64_t kept =
          read_pass(row, [&](int64_t at, const DataFingerprint& read, Prompt prompt) {
            if (at < row) return true;
            is_open = ahead_->push({epoch, at, read, std::move(prompt)});
            return is_open;
          });
      if (is_open && kept == 0) {
        throw ConfigError("--streaming-data: the files have no rows any more");
      }
    }
  } catch (...) {
    problem_ = std::current_exception();
  }
  ahead_->close();
}

int64_t PromptStream::read_pass(int64_t first, const OnPrompt& on_prompt) const {
  int64_t kept = 0;
  DataFingerprint read;
  bool goes_on = true;
  for (const SlicedPath& file : files_) {
    if (!goes_on) break;
    read_rows(file, [&](RowText text) {
      read.add(text.json);
      // Without a length filter every row is kept, so rows that are passed over need no look.
      if (kept < first && !config_.max_prompt_tokens) {
        ++kept;
        return true;
      }
      std::optional<Prompt> prompt = to_prompt(text, place_of(file.path, text.number));
      if (prompt) goes_on = on_prompt(kept++, read, std::move(*prompt));
      return goes_on;
    });
  }
  return kept;
}

std::optional<Prompt> PromptStream::to_prompt(const RowText& text, const std::string& where) const {
  DatasetRow row;
  Prompt prompt;
  try {
    row = read_row(text.json, config_.keys, where);
    if (config_.check_row) config_.check_row(row);
    prompt.text = render_row(row, render_);
    if (tokenize_ && (render_ || row.prompt.is_string())) {
      prompt.tokens = tokenize_(prompt.text);
      if (prompt.tokens.empty()) throw ConfigError("the prompt is empty");
    }
  } catch (const ConfigError& error) {
    const std::string_view what = error.what();
    if (what.starts_with(where)) throw;
    throw ConfigError(fmt::format("{}: {}", where, what));
  }
  if (config_.max_prompt_tokens &&
      static_cast<int64_t>(prompt.tokens.size()) > *config_.max_prompt_tokens) {
    return std::nullopt;
  }
  prompt.source = std::move(row.prompt);
  prompt.label = std::move(row.label);
  prompt.metadata = std::move(row.metadata);
  return prompt;
}

DataFingerprint PromptStream::fingerprint(int64_t num_rows) const {
  DataFingerprint read;
  for (const SlicedPath& file : files_) {
    if (read.num_rows >= num_rows) break;
    read_rows(file, [&](const RowText& text) {
      read.add(text.json);
      return read.num_rows < num_rows;
    });
  }
  return read;
}

Prompt PromptStream::prompt(int64_t row) const {
  std::optional<Prompt> found;
  read_pass(row, [&](int64_t at, const DataFingerprint&, Prompt prompt) {
    if (at == row) found = std::move(prompt);
    return !found;
  });
  if (!found) {
    throw ConfigError(fmt::format(
        "--prompt-data: row {}, of a group in flight when the run ended, is not there any more",
        row));
  }
  return *std::move(found);
}

}  // namespace slime::buffer
