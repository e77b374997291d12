#pragma once

/// The fields of requests, listed once: name, type, range, the protocols that have the field, and what
/// is done with it. Checks, refusals and the lists of known names follow from the table, and so does a
/// test that sends every field as null, with a wrong type, below, at and above its range
/// (request_matrix_test.cpp). The sampling parameters themselves are in engine/sampling_fields.h.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/field_reader.h"
#include "core/json.h"
#include "engine/sampling_fields.h"

namespace slime::engine {

/// A set of protocols as bits.
using Protocols = unsigned;
inline constexpr Protocols kGenerate = 1;  // the body of /generate
inline constexpr Protocols kSampling = 2;  // sampling_params in it
inline constexpr Protocols kChatCompletions = 4;
inline constexpr Protocols kCompletions = 8;
inline constexpr Protocols kTokenRoute = 16;     // vLLM's, the body of /inference/v1/generate
inline constexpr Protocols kTokenSampling = 32;  // sampling_params in it
inline constexpr Protocols kResponses = 64;
inline constexpr Protocols kMessages = 128;  // Anthropic's
inline constexpr Protocols kTokenize = 256;
inline constexpr Protocols kDetokenize = 512;
inline constexpr Protocols kChats = kChatCompletions | kResponses | kMessages;
/// Fields that OpenAI's routes share, and Anthropic's has beside its own (openai_fields.h).
inline constexpr Protocols kOpenAi = kChats | kCompletions;

enum class FieldType {
  kAny,  // the code that reads the field has rules of its own
  kBoolean,
  kInteger,   // in [low, high]
  kText,      // of at most `high` bytes
  kTokenIds,  // a list of at most `high` ids of the vocabulary
  kObject,
};

enum class FieldUse {
  kDone,
  kIgnored,  // accepted with any value: it changes nothing here
  kRefused,  // where it asks for something (FieldReader::refuse): `why`
};

struct RequestField {
  std::string_view name;
  Protocols protocols = 0;
  FieldUse use = FieldUse::kDone;
  FieldType type = FieldType::kAny;
  int64_t low = std::numeric_limits<int64_t>::min();
  int64_t high = std::numeric_limits<int64_t>::max();
  /// Instead of one value for all prompts there may be a list with one for each.
  bool is_per_prompt = false;
  std::string_view why = {};
};

/// Hard ceilings of what one call may ask for.
struct RequestLimits {
  static constexpr std::int64_t kMaxBatch = 4096;  // prompts times n
  static constexpr std::int64_t kMaxN = 1024;
  static constexpr std::int64_t kMaxTopLogprobs = 128;
  static constexpr std::int64_t kMaxSamplerHead = 4096;  // the same of /generate
  static constexpr std::int64_t kMaxLogprobIds = 1024;
  static constexpr std::size_t kMaxTotalTokens = std::size_t{1}
                                                 << 25;  // of all prompts, n times each
  static constexpr std::size_t kMaxRidBytes = 256;
  static constexpr std::size_t kMaxSaltBytes = 1024;
  static constexpr std::int64_t kMaxTokens = kMostTokens;
};

/// All rows. Names repeat where protocols mean different things by one.
std::span<const RequestField> request_fields();

/// Every name that a body of each of `protocols` may have, the sampling parameters among them.
std::vector<std::string_view> known_fields(Protocols protocols);

/// Notes each field that all of `protocols` refuse and that asks for something; not those that all of
/// `told` refuse too.
void refuse_unsupported(const FieldReader& fields, Protocols protocols, Protocols told = 0);

/// How many prompts a body has. `is_list`: they came as a list, so fields may be lists too.
struct PromptCount {
  std::size_t count = 1;
  bool is_list = false;
};

/// Checks all fields of `protocol` that the table has a type for; what is wrong is told to `fields`. A
/// list of a per-prompt field has one element for each prompt, and each element is checked.
void check_fields(const FieldReader& fields, Protocols protocol, PromptCount prompts,
                  int64_t vocab_size);

/// The value of a per-prompt field of /generate for one prompt: the field's own, or the list's element;
/// nullptr where it is absent or null. check_fields() has found nothing wrong.
const json::value* value_of_prompt(const json::object& body, std::string_view name,
                                   std::size_t prompt);

}  // namespace slime::engine
