#pragma once

/// Prompts read while the run trains (--streaming-data): a thread reads, renders and tokenises a
/// little ahead, so memory does not grow with the data and the first step does not wait for it.
/// Rows come in file order, pass after pass.
///
/// What Dataset checks before the run, a stream finds when it gets there: a row that cannot be used
/// ends the run with file and line.

#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "buffer/data_fingerprint.h"
#include "buffer/dataset.h"
#include "buffer/row_file.h"
#include "core/bounded_queue.h"
#include "core/sample.h"

namespace slime::buffer {

/// A prompt and where it stands: row `row` of those that the length filter keeps, in pass `epoch`.
struct StreamedPrompt {
  int64_t epoch = 0;
  int64_t row = 0;
  DataFingerprint read;  // of the rows of the pass up to this one, those left out included
  Prompt prompt;
};

/// Owned by one thread, the loop's.
class PromptStream {
 public:
  /// Opens all files and reads the first rows, so that mistakes of every row are seen at once.
  /// `render` and `tokenize` as for Dataset::load. Throws ConfigError.
  PromptStream(DatasetConfig config, RenderFn render, TokenizeFn tokenize);
  ~PromptStream();
  PromptStream(const PromptStream&) = delete;

  /// Whether prompts are rendered by a chat template; otherwise a list of messages stays one.
  bool applies_template() const { return static_cast<bool>(render_); }

  /// Waits for the reader. Throws what the reader met.
  StreamedPrompt next();

  /// The next prompt will be this one; rows before it are read again and passed over.
  void seek(int64_t epoch, int64_t row);

  /// What a run that goes on wants to know of the files as they are now.
  struct Lookback {
    /// Of the first rows of the files, counted with those that are left out; of fewer when there
    /// are no more.
    DataFingerprint read;
    std::map<int64_t, Prompt> prompts;  // by row
  };

  /// seek(), and in the same reading of the rows before that one: the fingerprint of the first
  /// `num_rows` rows, and the prompts of `rows` (of groups that were in flight when a run ended).
  /// Rows behind the position are looked for in a pass of their own. Waits for the reader. Throws
  /// ConfigError, also when a row is not there any more; the stream is of no use then.
  Lookback resume(int64_t epoch, int64_t row, int64_t num_rows, const std::set<int64_t>& rows);

 private:
  /// Where the reader starts, and what it answers on the way there.
  struct Order {
    int64_t epoch = 0;
    int64_t row = 0;
    int64_t num_rows = 0;
    std::set<int64_t> rows;
    std::optional<std::promise<Lookback>> answer;
  };
  void start(Order order);
  void stop();
  /// Top of the reading thread.
  void read(Order order);
  /// Reads until the queue is closed. `order.answer` is kept and taken away as soon as it is known.
  void read_on(Order& order);
  /// Adds what the rows before the position did not give: fewer of them are kept now than when the
  /// run ended, or a row stands behind it.
  void complete(Lookback& found, const Order& order, bool pass_has_ended) const;

  struct Pass {
    int64_t first = 0;                       // rows before it may be given without text
    const std::set<int64_t>* but = nullptr;  // these of them have it all the same
    std::function<void(const DataFingerprint& read)> on_row;  // each one that is read; may be empty
    /// Kept rows, until it returns false.
    std::function<bool(int64_t row, const DataFingerprint& read, Prompt prompt)> on_prompt;
  };
  /// Returns how many rows it has kept.
  int64_t read_pass(const Pass& pass) const;
  std::optional<Prompt> to_prompt(const RowText& text, const std::string& where) const;

  const DatasetConfig config_;
  const RenderFn render_;
  const TokenizeFn tokenize_;
  std::vector<SlicedPath> files_;
  std::unique_ptr<BoundedQueue<StreamedPrompt>> ahead_;
  std::exception_ptr problem_;  // written by the reader before it closes the queue
  std::jthread reader_;
};

}  // namespace slime::buffer
