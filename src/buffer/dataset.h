#pragma once

/// The prompts of a run: rows of JSON-lines or Parquet files, rendered by the chat template,
/// tokenised, and kept in memory in a compact form.
///
/// Reading happens once, before any long work. Nothing is dropped silently: a row that cannot be
/// used is a ConfigError that names file and line (all such rows at once), and the only rows left
/// out are those longer than max_prompt_tokens, which are counted.
///
/// A row of the file, with the default keys and the label key "answer":
///
///   {"input": [{"role": "user", "content": "2+3?"}], "answer": "5",
///    "metadata": {"rm_type": "math"}}

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "buffer/dataset_row.h"
#include "core/error.h"
#include "core/sample.h"

namespace slime::buffer {

/// Token ids of a prompt of messages, with the header of the answer. Called from several threads at
/// once.
using TokenizeMessagesFn =
    std::function<std::vector<TokenId>(const json::array& messages, const json::array& tools)>;

/// Words in quotes are the flags that set a field.
struct DatasetConfig {
  std::vector<std::string> paths;  // "--prompt-data": .jsonl or .parquet, each may end in @[a:b]
  std::string flag = "--prompt-data";  // that names them, for messages
  RowKeys keys;
  bool apply_chat_template = false;  // "--apply-chat-template"
  /// "--rollout-max-prompt-len": longer prompts are left out. Prompts that stay lists of messages
  /// are neither tokenised nor measured.
  std::optional<int64_t> max_prompt_tokens;
  /// A look at each row before it is kept; a ConfigError that it throws is reported with file and
  /// line. Called from several threads at once; may be empty.
  std::function<void(const DatasetRow& row)> check_row;
  /// Why a row is left out ("no_trained_token"), after check_row; such rows are counted by their
  /// reasons. Called and reported as check_row is; may be empty. A stream leaves none out.
  std::function<std::optional<std::string>(const DatasetRow& row)> leave_out;
  /// The tokens of messages where they are not those of the rendered text alone; may be empty.
  TokenizeMessagesFn tokenize_messages;
  int num_threads = 0;  // for templates and tokens; 0: one per core
};

/// Token ids of a text, no special tokens added. Called from several threads at once.
using TokenizeFn = std::function<std::vector<TokenId>(std::string_view text)>;

/// The tokens of a row's prompt.
std::vector<TokenId> tokenize_row(const DatasetRow& row, const RenderFn& render,
                                  const TokenizeFn& tokenize,
                                  const TokenizeMessagesFn& tokenize_messages);

/// "3 no_trained_token, 2 longer_than_the_model".
std::string words_of_left_out(const std::map<std::string, int64_t>& left_out);

/// Every row of a data set is too long or left out.
class NoRowLeft : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// Immutable once loaded; may be read from several threads.
class Dataset {
 public:
  /// Reads all files. `render` may be empty unless apply_chat_template is set; with an empty
  /// `tokenize` prompts have no tokens and none is too long. Throws ConfigError.
  static Dataset load(const DatasetConfig& config, RenderFn render, TokenizeFn tokenize);

  /// Rows that are left after the length filter, in file order. At least 1.
  int64_t size() const { return static_cast<int64_t>(rows_.size()); }

  /// The prompt of a row. Its ordinal is 0: the data source numbers what it gives out. The text is
  /// rendered anew: only row and tokens are stored, which keeps a data set near twice its file.
  Prompt prompt(int64_t row) const;

  /// Whether prompts are rendered by a chat template; otherwise a list of messages stays one.
  bool applies_template() const { return static_cast<bool>(render_); }

  /// Tokens of the longest prompt; 0 when prompts are not tokenised.
  int64_t longest_prompt() const;

  /// Rows left out because they have more than max_prompt_tokens tokens.
  int64_t num_too_long() const { return num_too_long_; }

  /// Rows left out for other reasons (DatasetConfig::leave_out), by reason.
  const std::map<std::string, int64_t>& left_out() const { return left_out_; }

  /// Whether some row has the field of "--metadata-key", or "--tool-key". Where none has it, the
  /// flag may be misspelt.
  bool has_metadata() const { return has_metadata_; }
  bool has_tools() const { return has_tools_; }
  /// Which schema the first row was recognised by (DatasetRow::schema); empty: none.
  const std::string& schema() const { return schema_; }
  /// "the row has prompt, answer", of the first row.
  const std::string& first_fields() const { return first_fields_; }

  /// CRC-32C over the rows in order: differs when a row, its content or the order differs.
  uint32_t fingerprint() const { return fingerprint_; }

 private:
  friend class DatasetLoader;

  /// Rows that were read together: their packed texts and their tokens, end to end.
  struct Chunk {
    std::string packed;
    std::vector<TokenId> tokens;
  };
  struct Row {
    uint32_t chunk = 0;
    uint32_t packed_begin = 0;
    uint32_t packed_length = 0;
    uint32_t tokens_begin = 0;
    uint32_t num_tokens = 0;
  };

  Dataset() = default;

  RenderFn render_;  // empty when the chat template is not applied
  std::vector<Chunk> chunks_;
  std::vector<Row> rows_;
  int64_t num_too_long_ = 0;
  std::map<std::string, int64_t> left_out_;
  uint32_t fingerprint_ = 0;
  bool has_metadata_ = false, has_tools_ = false;
  std::string first_fields_, schema_;
};

}  // namespace slime::buffer
