#pragma once

/// Supervised rows: what is trained of a row of the data set, as tokens and a mask. Nothing is
/// generated (spec section 9).
///
/// A row is a conversation (its answers are trained), a pair of preferences (the two responses), a
/// prompt with its completion, or plain text. docs/data.md shows all forms.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "buffer/dataset_row.h"
#include "config/run_config.h"
#include "core/sample.h"
#include "setup/prompts.h"
#include "text/loss_mask.h"

namespace slime::setup {

/// Immutable; may be used by any number of threads.
class SupervisedRows {
 public:
  /// `text` outlives the object. Throws ConfigError for a word that is no loss mask type, and where
  /// the model has no configuration.
  SupervisedRows(const config::RunConfig& config, const ModelText& text);

  /// Why a row is left out: no_trained_token, chosen_is_rejected (a pair of the same tokens, which
  /// has no gradient), longer_than_the_model, or the limit that it exceeds.
  /// Throws ConfigError when it cannot be read.
  std::optional<std::string> left_out(const buffer::DatasetRow& row) const;

  /// Fills tokens, prompt length and mask of the group's samples; the two of a pair of preferences
  /// become the prompt with the chosen and with the rejected response. The response begins at the
  /// first trained token. Returns why the group is left out, as left_out() does. Throws ConfigError
  /// naming the prompt.
  std::optional<std::string> complete(Group& group) const;

 private:
  using Rows = std::vector<text::MaskedTokens>;  // one, or the two of a pair

  Expected<Rows> read(const json::value& prompt, const json::object& metadata) const;
  Expected<text::MaskedTokens> conversation(json::array prompt, const json::value* response,
                                            const json::object& metadata) const;
  text::MaskedTokens plain_text(const std::string& prompt, const std::string& trained) const;
  std::optional<std::string> left_out(const Rows& rows) const;

  const config::RunConfig& config_;
  const ModelText& text_;
  text::LossMasker masker_;
  std::vector<TokenId> end_ids_;
  int64_t max_positions_;
};

}  // namespace slime::setup
