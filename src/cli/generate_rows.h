#pragma once

/// Rows of a data set for `slime generate --rows`: each to a request, and each answer to a row again, which
/// `slime score --rows` scores and `slime train --loss-type sft_loss` trains on.
///
///   {"prompt": "2+3?", "label": "5", "source": "mine"}
///   -> {"prompt": "2+3?", "response": "5", "label": "5", "status": "completed", "group": 0,
///       "metadata": {"source": "mine"}}

#include <cstdint>
#include <string>

#include "core/json.h"

namespace slime::cli {

/// Options for turning rows into generation requests.
struct RowOptions {
  std::string input_key = "prompt";
  bool applies_template = false;  // a text is one message of a user
  int64_t samples = 1;            // of each row
  json::object sampling_params = {};
};

struct RowRequest {
  json::object request;  // a line of `slime generate`
  json::object row;      // what the answer is added to
};

/// The prompt is the field `input_key`, a text or a list of messages; `text` and `messages` are read where it
/// is missing. Fields that are none of ours become metadata. Throws ConfigError.
RowRequest to_request(const json::object& line, int64_t number, const RowOptions& options);

/// The row with one answer, an object of POST /generate, or {"error": ...}: then its status is failed.
json::object to_answered_row(const json::object& row, const json::object& answer);

}  // namespace slime::cli
