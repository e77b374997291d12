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
#include <memory>
#include <optional>
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
  /// Opens all files and reads the first row, so that mistakes of every row are seen at once.
  /// `render` and `tokenize` as for Dataset::load. Throws ConfigError.
  PromptStream(DatasetConfig config, RenderFn render, TokenizeFn tokenize);
  ~PromptStream();
  PromptStream(const PromptStream&) = delete;

  /// Waits for the reader. Throws what the reader met.
  StreamedPrompt next();

  /// The next prompt will be this one; rows before it are read again and passed over.
  void seek(int64_t epoch, int64_t row);

  /// Of the first `num_rows` rows of the files as they are now, counted with those that are left
  /// out; of fewer when there are no more. Throws ConfigError.
  DataFingerprint fingerprint(int64_t num_rows) const;

  /// A single row, read from the beginning: for groups that were in flight when a run ended.
  Prompt prompt(int64_t row) const;

 private:
  void start(int64_t epoch, int64_t row);
  void stop();
  /// Top of the reading thread.
  void read(int64_t epoch, int64_t row);
  /// Calls on_prompt for kept rows of one pass until it returns false; rows before `first` are
  /// given without text. Returns how many rows the pass has kept.
  using OnPrompt = std::function<bool(int64_t row, const DataFingerprint& read, Prompt prompt)>;
  int64_t read_pass(int64_t first, const OnPrompt& on_prompt) const;
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
