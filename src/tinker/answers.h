#pragma once

/// Answers of futures in their two forms: JSON, or the messages ForwardBackwardOutput and
/// SampleResponse of Protocol Buffers.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/json.h"
#include "core/sample.h"

namespace slime::tinker {

/// Of forward_backward.
struct PassAnswer {
  std::vector<std::vector<float>> log_probs;         // of the targets of each datum
  std::vector<std::vector<float>> elementwise_loss;  // empty: the loss has none
  std::map<std::string, double> metrics;             // "loss:sum"
};

/// The most probable tokens of each position, best first; none where there is no distribution.
using TopTokens = std::vector<std::vector<std::pair<float, TokenId>>>;

/// Of asample.
struct SampleAnswer {
  struct Sequence {
    std::vector<TokenId> tokens;
    std::vector<float> log_probs;
    bool is_stopped = false;  // else it was as long as it may be
    std::optional<std::string> text;
    TopTokens top;
  };
  std::vector<Sequence> sequences;
  std::optional<std::vector<std::optional<float>>> prompt_log_probs;
  TopTokens prompt_top;
  int64_t num_top = 0;            // of the sequences' positions; 0: nobody asked
  int64_t num_prompt_top = 0;     // of the prompt's
  int64_t num_cached_tokens = 0;  // of the prompt
};

using Answer = std::variant<json::object, PassAnswer, SampleAnswer>;

json::object json_of(const Answer& answer);
/// Nothing: the protocol has it in JSON alone.
std::optional<std::string> protobuf_of(const Answer& answer);
/// Of a message that protobuf_of() made of a pass. Throws ConfigError.
PassAnswer read_pass_answer(std::string_view message);
/// In memory, about.
std::size_t num_bytes(const Answer& answer);

}  // namespace slime::tinker
