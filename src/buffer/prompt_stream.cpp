#include "buffer/prompt_stream.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"

namespace slime::buffer {
namespace {

constexpr std::size_t kAhead = 256;  // prompts that wait: a rollout step or two
constexpr int kFirstRows = 64;       // that are looked at before the run

}  // namespace

PromptStream::PromptStream(DatasetConfig config, RenderFn render, TokenizeFn tokenize)
    : config_(std::move(config)),
      render_(config_.apply_chat_template ? std::move(render) : nullptr),
      tokenize_(std::move(tokenize)) {
  if (config_.paths.empty()) throw ConfigError("--prompt-data: no file is given");
  files_ = open_paths(config_.paths, config_.flag);
  int num_rows = 0;
  read_pass({.on_prompt = [&](int64_t, const DataFingerprint&, const Prompt&) {
    return ++num_rows < kFirstRows;
  }});
  if (num_rows == 0) {
    throw ConfigError(
        "--streaming-data: the files have no row, or only prompts longer than "
        "--rollout-max-prompt-len");
  }
  start({});
}

PromptStream::~PromptStream() { stop(); }

void PromptStream::start(Order order) {
  ahead_ = std::make_unique<BoundedQueue<StreamedPrompt>>(kAhead);
  problem_ = nullptr;
  reader_ = std::jthread([this, order = std::move(order)]() mutable { read(std::move(order)); });
}

void PromptStream::stop() {
  if (ahead_ != nullptr) ahead_->close();
  if (reader_.joinable()) reader_.join();
}

void PromptStream::seek(int64_t epoch, int64_t row) {
  stop();
  start({.epoch = epoch, .row = row});
}

PromptStream::Lookback PromptStream::resume(int64_t epoch, int64_t row, int64_t num_rows,
                                            const std::set<int64_t>& rows) {
  stop();
  std::promise<Lookback> answer;
  std::future<Lookback> found = answer.get_future();
  start({epoch, row, num_rows, rows, std::move(answer)});
  return found.get();
}

StreamedPrompt PromptStream::next() {
  std::optional<StreamedPrompt> prompt = ahead_->pop();
  if (prompt) return std::move(*prompt);
  reader_.join();
  if (problem_) std::rethrow_exception(problem_);
  throw BugError("a stream of prompts ends only with a problem");
}

void PromptStream::read(Order order) {
  try {
    read_on(order);
  } catch (...) {
    problem_ = std::current_exception();
    if (order.answer) order.answer->set_exception(problem_);
  }
  ahead_->close();
}

void PromptStream::read_on(Order& order) {
  Lookback found;
  const auto answer = [&](bool pass_has_ended) {
    if (!order.answer) return;
    complete(found, order, pass_has_ended);
    std::exchange(order.answer, std::nullopt)->set_value(std::move(found));
  };
  for (bool is_open = true; is_open; ++order.epoch, order.row = 0) {
    Pass pass{.first = order.row, .but = &order.rows};
    if (order.answer) {
      pass.on_row = [&](const DataFingerprint& read) {
        if (read.num_rows <= order.num_rows) found.read = read;
      };
    }
    pass.on_prompt = [&](int64_t at, const DataFingerprint& read, Prompt prompt) {
      if (at < order.row) {
        if (order.rows.contains(at)) found.prompts.emplace(at, std::move(prompt));
        return true;
      }
      answer(/*pass_has_ended=*/false);
      is_open = ahead_->push({order.epoch, at, read, std::move(prompt)});
      return is_open;
    };
    const int64_t kept = read_pass(pass);
    if (is_open) answer(/*pass_has_ended=*/true);
    if (is_open && kept == 0) {
      throw ConfigError("--streaming-data: the files have no rows any more");
    }
  }
}

void PromptStream::complete(Lookback& found, const Order& order, bool pass_has_ended) const {
  std::set<int64_t> missing;
  for (const int64_t row : order.rows) {
    if (!found.prompts.contains(row)) missing.insert(row);
  }
  const auto needs_rows = [&] { return !pass_has_ended && found.read.num_rows < order.num_rows; };
  if (missing.empty() && !needs_rows()) return;
  const int64_t last = missing.empty() ? -1 : *missing.rbegin();
  Pass pass{.first = last + 1, .but = &missing};
  pass.on_row = [&](const DataFingerprint& read) {
    if (read.num_rows <= order.num_rows) found.read = read;
  };
  pass.on_prompt = [&](int64_t at, const DataFingerprint&, Prompt prompt) {
    if (missing.contains(at)) found.prompts.emplace(at, std::move(prompt));
    return at < last || needs_rows();
  };
  read_pass(pass);
  for (const int64_t row : missing) {
    if (found.prompts.contains(row)) continue;
    throw ConfigError(fmt::format(
        "--prompt-data: row {}, of a group in flight when the run ended, is not there any more",
        row));
  }
}

int64_t PromptStream::read_pass(const Pass& pass) const {
  int64_t kept = 0;
  DataFingerprint read;
  bool goes_on = true;
  for (const SlicedPath& file : files_) {
    if (!goes_on) break;
    read_rows(file, [&](const RowText& text) {
      read.add(text.json);
      if (pass.on_row) pass.on_row(read);
      // Without a length filter every row is kept, so rows that are passed over need no look.
      if (kept < pass.first && !config_.max_prompt_tokens &&
          (pass.but == nullptr || !pass.but->contains(kept))) {
        ++kept;
        return true;
      }
      std::optional<Prompt> prompt = to_prompt(text, place_of(file.path, text.number));
      if (prompt) goes_on = pass.on_prompt(kept++, read, std::move(*prompt));
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
      prompt.tokens = tokenize_row(row, render_, tokenize_, config_.tokenize_messages);
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

}  // namespace slime::buffer
