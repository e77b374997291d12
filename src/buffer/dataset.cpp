#include "buffer/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "buffer/equal_problems.h"
#include "buffer/row_file.h"
#include "core/bounded_queue.h"
#include "core/crc32c.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

/// Of lines that one thread works on at a time.
constexpr std::size_t kBatchBytes = std::size_t{1} << 18;
constexpr int64_t kMostProblems = 10;  // the rows after so many are not looked at

/// Lines that follow one another in one file.
struct Batch {
  std::size_t index = 0;
  std::filesystem::path path;
  std::vector<std::pair<int64_t, std::string>> lines;  // line number, text
  std::size_t num_bytes = 0;
};

}  // namespace

/// Reads lines on the calling thread, works on them on others, and puts the results together in
/// file order.
class DatasetLoader {
 public:
  DatasetLoader(const DatasetConfig& config, const RenderFn& render, const TokenizeFn& tokenize)
      : config_(config),
        render_(render),
        tokenize_(tokenize),
        num_threads_(config.num_threads > 0 ? static_cast<std::size_t>(config.num_threads)
                                            : std::max(1U, std::thread::hardware_concurrency())),
        batches_(2 * num_threads_) {}  // enough that no thread waits for the reader

  Dataset load() {
    const std::vector<SlicedPath> files = open_paths(config_.paths, config_.flag);
    {
      std::vector<std::jthread> threads;
      // Whatever the reader throws: the threads end, and are joined.
      const std::shared_ptr<void> close_at_end(nullptr, [this](void*) { batches_.close(); });
      for (std::size_t i = 0; i < num_threads_; ++i) threads.emplace_back([this] { work(); });
      for (const SlicedPath& path : files) read_file(path);
      send();
      batches_.close();
    }
    if (bug_) std::rethrow_exception(bug_);
    return put_together();
  }

 private:
  /// What became of one batch.
  struct Result {
    Dataset::Chunk chunk;
    std::vector<Dataset::Row> rows;  // their chunk is filled in at the end
    int64_t num_too_long = 0;
    std::map<std::string, int64_t> left_out;
    bool has_metadata = false, has_tools = false;
    std::string first_fields, schema;
    std::vector<std::string> problems;
  };

  void read_file(const SlicedPath& sliced) {
    send();
    pending_.path = sliced.path;
    read_rows(sliced, [this](RowText row) {
      if (num_problems_ >= kMostProblems) return false;
      pending_.num_bytes += row.json.size();
      pending_.lines.emplace_back(row.number, std::move(row.json));
      if (pending_.num_bytes >= kBatchBytes) send();
      return true;
    });
  }

  void send() {
    if (pending_.lines.empty()) return;
    Batch batch = std::move(pending_);
    batch.index = num_batches_++;
    pending_ = Batch();
    pending_.path = batch.path;
    batches_.push(std::move(batch));  // fails only after a thread met a bug, which load() reports
  }

  /// Top of a thread.
  void work() {
    try {
      while (std::optional<Batch> batch = batches_.pop()) {
        Result result = process(*batch);
        const std::lock_guard lock(mutex_);
        results_.emplace(batch->index, std::move(result));
      }
    } catch (...) {
      {
        const std::lock_guard lock(mutex_);
        if (!bug_) bug_ = std::current_exception();
      }
      batches_.close();
    }
  }

  Result process(const Batch& batch) {
    Result result;
    result.chunk.packed.reserve(batch.num_bytes);
    for (const auto& [number, line] : batch.lines) {
      // A template that never ends is bad in every row, and takes its whole budget in each.
      if (num_problems_ >= kMostProblems) break;
      const std::string where = place_of(batch.path, number);
      try {
        add_row(read_row(line, config_.keys, where), where, result);
      } catch (const ConfigError& error) {
        ++num_problems_;
        const std::string_view what = error.what();
        result.problems.push_back(what.starts_with(where) ? std::string(what)
                                                          : fmt::format("{}: {}", where, what));
      }
    }
    result.chunk.packed.shrink_to_fit();
    result.chunk.tokens.shrink_to_fit();
    return result;
  }

  void add_row(const DatasetRow& row, const std::string& where, Result& result) const {
    result.has_metadata |= row.has_metadata_field;
    result.has_tools |= row.has_tools_field;
    if (result.first_fields.empty()) {
      result.first_fields = row.fields;
      result.schema = row.schema;
    }
    if (config_.check_row) config_.check_row(row);
    if (config_.leave_out) {
      if (const auto reason = config_.leave_out(row)) {
        ++result.left_out[*reason];
        return;
      }
    }
    std::vector<TokenId> tokens;
    if (tokenize_ && (render_ || row.prompt.is_string())) {
      tokens = tokenize_row(row, render_, tokenize_, config_.tokenize_messages);
      if (tokens.empty()) throw ConfigError(fmt::format("{}: the prompt is empty", where));
      if (config_.max_prompt_tokens &&
          static_cast<int64_t>(tokens.size()) > *config_.max_prompt_tokens) {
        ++result.num_too_long;
        return;
      }
    }
    const std::string packed = pack_row(row);
    result.rows.push_back({.packed_begin = static_cast<uint32_t>(result.chunk.packed.size()),
                           .packed_length = static_cast<uint32_t>(packed.size()),
                           .tokens_begin = static_cast<uint32_t>(result.chunk.tokens.size()),
                           .num_tokens = static_cast<uint32_t>(tokens.size())});
    result.chunk.packed += packed;
    result.chunk.tokens.insert(result.chunk.tokens.end(), tokens.begin(), tokens.end());
  }

  Dataset put_together() {
    throw_problems();
    Dataset dataset;
    dataset.render_ = render_;
    for (auto& [index, result] : results_) {
      const auto chunk = static_cast<uint32_t>(dataset.chunks_.size());
      for (Dataset::Row row : result.rows) {
        row.chunk = chunk;
        dataset.rows_.push_back(row);
      }
      dataset.fingerprint_ = crc32c(result.chunk.packed, dataset.fingerprint_);
      dataset.num_too_long_ += result.num_too_long;
      for (const auto& [reason, count] : result.left_out) dataset.left_out_[reason] += count;
      dataset.has_metadata_ |= result.has_metadata;
      dataset.has_tools_ |= result.has_tools;
      if (dataset.first_fields_.empty()) {
        dataset.first_fields_ = result.first_fields;
        dataset.schema_ = result.schema;
      }
      dataset.chunks_.push_back(std::move(result.chunk));
    }
    if (dataset.rows_.empty()) {
      const bool is_training = config_.flag == "--prompt-data";
      if (!dataset.left_out_.empty()) {
        throw NoRowLeft(fmt::format("{} {}: no row is left: {}", config_.flag,
                                    fmt::join(config_.paths, " "),
                                    words_of_left_out(dataset.left_out_)));
      }
      if (dataset.num_too_long_ == 0) {
        throw ConfigError(
            fmt::format("{} {}: no rows", config_.flag, fmt::join(config_.paths, " ")));
      }
      throw NoRowLeft(fmt::format(
          "{} {}: all {} prompts have more than {} tokens ({})", config_.flag,
          fmt::join(config_.paths, " "), dataset.num_too_long_, *config_.max_prompt_tokens,
          is_training ? "--rollout-max-prompt-len" : "--eval-max-prompt-len"));
    }
    return dataset;
  }

  void throw_problems() const {
    std::vector<std::string> problems;
    for (const auto& [index, result] : results_) {
      problems.insert(problems.end(), result.problems.begin(), result.problems.end());
    }
    if (num_problems_ >= kMostProblems)
      problems.emplace_back("... and perhaps more: the rows after these were not read");
    if (!problems.empty()) throw ConfigError(joined_problems(problems));
  }

  const DatasetConfig& config_;
  const RenderFn& render_;
  const TokenizeFn& tokenize_;
  const std::size_t num_threads_;
  BoundedQueue<Batch> batches_;
  Batch pending_;                // owned by the reading thread
  std::size_t num_batches_ = 0;  // owned by the reading thread
  std::mutex mutex_;
  std::map<std::size_t, Result> results_;  // by batch index; guarded by mutex_
  std::exception_ptr bug_;                 // guarded by mutex_
  std::atomic<int64_t> num_problems_{0};
};

std::string words_of_left_out(const std::map<std::string, int64_t>& left_out) {
  std::vector<std::string> words;
  for (const auto& [reason, count] : left_out) words.push_back(fmt::format("{} {}", count, reason));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::vector<TokenId> tokenize_row(const DatasetRow& row, const RenderFn& render,
                                  const TokenizeFn& tokenize,
                                  const TokenizeMessagesFn& tokenize_messages) {
  if (!render || !tokenize_messages) return tokenize(render_row(row, render));
  return tokenize_messages(messages_of(row), row.tools);
}

Dataset Dataset::load(const DatasetConfig& config, RenderFn render, TokenizeFn tokenize) {
  check(!config.apply_chat_template || render,
        "a chat template is applied by a function that was given");
  if (config.paths.empty()) throw ConfigError("--prompt-data: no file is given");
  if (!config.apply_chat_template) render = nullptr;
  return DatasetLoader(config, render, tokenize).load();
}

int64_t Dataset::longest_prompt() const {
  uint32_t longest = 0;
  for (const Row& row : rows_) longest = std::max(longest, row.num_tokens);
  return longest;
}

Prompt Dataset::prompt(int64_t row) const {
  check(row >= 0 && row < size(), "a row number is within the data set");
  const Row& place = rows_[static_cast<std::size_t>(row)];
  const Chunk& chunk = chunks_[place.chunk];
  DatasetRow parts =
      unpack_row(std::string_view(chunk.packed).substr(place.packed_begin, place.packed_length));
  Prompt prompt;
  prompt.text = render_row(parts, render_);
  const auto first = chunk.tokens.begin() + place.tokens_begin;
  prompt.tokens.assign(first, first + place.num_tokens);
  prompt.source = std::move(parts.prompt);
  prompt.label = std::move(parts.label);
  prompt.metadata = std::move(parts.metadata);
  return prompt;
}

}  // namespace slime::buffer
