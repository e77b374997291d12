#pragma once

/// Agents that talk to an engine as a server's clients do: each sends its conversation, reads the answer
/// as it comes, and sends the conversation again with the answer and what a tool said behind it.
///
/// All agents begin at once and none waits between its turns, so prompts meet requests that decode from
/// the second turn on. A conversation grows by the same number of tokens each turn; answers take a random
/// share of these, the tool the rest.

#include <string>
#include <vector>

#include "bench/made_up_model.h"
#include "core/clock.h"
#include "core/json.h"
#include "engine/client.h"

namespace slime::bench {

struct AgentsOptions {
  std::string name;
  ShapeOptions shape;
  std::string device = "cuda";
  int64_t agents = 64;
  int64_t turns = 8;
  int64_t prompt_tokens = 2048;  // of the first turn
  int64_t growth = 512;          // of the prompt from turn to turn
  int64_t new_tokens = 256;      // mean of an answer; the shortest has half, the longest half more
  int64_t max_prefill_tokens = 8192;
  int64_t prefill_beside_decode = 0;  // EngineConfig's
  std::string kv_cache_dtype = "auto";
  int repeats = 1;
};

/// Tokens of an answer; of agent and turn alone.
int64_t answer_length(const AgentsOptions& options, int64_t agent, int64_t turn);

/// Tokens of a conversation with its last answer.
int64_t longest_conversation(const AgentsOptions& options);

/// Latencies and counts of all agents.
struct AgentsRun {
  double seconds = 0;  // from the first prompt to the last token
  int64_t output_tokens = 0;
  int64_t prompt_tokens = 0;                          // of all turns
  int64_t cached_tokens = 0;                          // of those, found in the prefix tree
  std::vector<double> first_turn_waits, later_waits;  // seconds from a prompt to its first token
  std::vector<double> gaps;                           // seconds from a token to the next
};

/// `seed`: of the tokens. Throws ConfigError when the engine ends a request that nobody ended, and where
/// answers do not fit into the growth.
AgentsRun run_agents(engine::EngineClient& engine, const AgentsOptions& options, int64_t vocab_size,
                     uint64_t seed, const Clock& clock);

/// {"value": output tokens per second, "first_token_ms", "token_gap_ms", ...}, of the fastest run.
json::object agents_line(const AgentsOptions& options, const std::vector<AgentsRun>& runs);

}  // namespace slime::bench
