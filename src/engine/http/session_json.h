#pragma once

/// Sessions as JSON: how one is opened, and its turns.
///
///   {"name": "a-17", "sampling_defaults": {"temperature": 1.0, "max_new_tokens": 512},
///    "max_context_tokens": 32768, "max_turns": 50}
///
///   {"name": "a-17", "num_running": 0, "turns": [
///     {"id": 1, "parent": null, "num_prompt_tokens": 3, "context_ids": [5, 6, 7],
///      "output_ids": [8, 2], "output_log_probs": [-0.5, -0.1], "finish_reason": "stop", ...},
///     {"id": 2, "parent": 1, "num_prompt_tokens": 7, "context_ids": [9, 9], ...}]}
///
/// With "custom_params": {"return_top_p_token_ids": true} in the defaults a turn also has
/// output_top_p_token_ids, the nuclei of its tokens end to end, and output_top_p_token_counts.
///
/// A turn's prompt is all tokens of its parent, then its context_ids.

#include <string>

#include "core/json.h"
#include "engine/http/openai_answer.h"
#include "engine/sessions/session.h"

namespace slime::engine {

struct NewSession {
  std::string name;
  SessionOptions options;
};

/// Without a name one is made. Throws ConfigError with every problem.
NewSession read_new_session(const json::object& body, const ServedModel& model);

/// Name, counts and limits.
json::object session_summary(const Session& session);
/// The same with all turns, in the order of their records.
json::object session_with_turns(const Session& session, const VersionNamer& namer);

}  // namespace slime::engine
