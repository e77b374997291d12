#pragma once

/// Settings of each evaluation data set: the entries of --eval-config over its defaults over the
/// flags (spec section 19.1).
///
///   eval:                      # this level may be missing
///     defaults: {max_response_len: 16384, top_p: 0.7}
///     datasets:                # a list with names, or a map from name to entry
///       - {name: aime, path: /data/aime.jsonl, rm_type: deepscaler, n_samples_per_eval_prompt: 16}

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/json.h"

namespace slime::config {

/// One data set with everything resolved. A field without value is what the engine or the loop does
/// by default.
struct EvalSetConfig {
  std::string name;
  std::string path;
  std::string rm_type;         // empty: --rm-type
  std::string custom_rm_path;  // a function of the user's; empty: --custom-rm-path
  std::string input_key;
  std::string label_key;
  std::string tool_key;
  std::string metadata_key;
  bool apply_chat_template = false;
  json::object apply_chat_template_kwargs;
  int64_t n_samples = 1;
  double temperature = 1;
  double top_p = 1;
  int64_t top_k = -1;
  std::optional<int64_t> max_response_len;
  int64_t min_new_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_token_ids;
  double repetition_penalty = 1;
  std::optional<bool> skip_special_tokens;
  bool no_stop_trim = true;
  std::string custom_generate_function_path;  // empty: --custom-generate-function-path
  json::object metadata_overrides;
  std::vector<std::string> without_effect;  // keys the entry sets that nothing here reads
};

/// The data sets of --eval-config, or of --eval-prompt-data. Throws ConfigError with everything
/// that is wrong: file, data set, key, what is allowed.
std::vector<EvalSetConfig> eval_sets_of(const RunConfig& config);

/// The same as objects with the keys of an entry, for functions of the user's. None: no data set is
/// named.
std::vector<json::object> eval_set_records(const RunConfig& config);

/// The rules alone: entry (a present null counts) > defaults > arguments, which are the flags by
/// their names with _ for -. `where` starts messages. One object per data set, with the keys of an
/// entry.
std::vector<json::object> resolve_eval_sets(const json::value& datasets,
                                            const json::object& defaults,
                                            const json::object& arguments,
                                            const std::string& where);

/// A sample's metadata in an evaluation: its own (an object, else nothing), then the data set's
/// rm_type, then the overrides.
json::object eval_metadata(const json::value& sample_metadata, const std::string& rm_type,
                           const json::object& overrides);

}  // namespace slime::config
