#pragma once

/// Sampling parameters as JSON: read from requests of the HTTP protocols, written for users' functions.
/// Both go through engine/sampling_fields.h.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/field_reader.h"
#include "core/json.h"
#include "engine/client.h"
#include "engine/sampling_fields.h"

namespace slime::engine {

struct SamplingLimits {
  static constexpr std::size_t kMaxStops = 64;
  static constexpr std::size_t kMaxStopBytes = 1024;  // of any text in a list
  static constexpr std::size_t kMaxLogitBias = 4096;
  static constexpr std::size_t kMaxGrammarBytes = 256 << 10;
};

/// Reads the fields into `params`; an absent or null one leaves its member. Of OpenAI's names all but
/// max_tokens, whose default and spelling differ from route to route. Wrong types are problems of
/// `fields`; ranges are checked by problems_of (engine/sampling_params.h).
void read_sampling_params(const FieldReader& fields, SamplingNames names, int64_t vocab_size,
                          SamplingParams& params);

/// Every name that read_sampling_params knows, and max_tokens.
std::vector<std::string_view> sampling_names(SamplingNames names);

/// sampling_params of users' functions, by SGLang's names: what is not at its default, and what the
/// original always has there. Reading it gives `params` again.
json::object to_json(const SamplingParams& params);

}  // namespace slime::engine
