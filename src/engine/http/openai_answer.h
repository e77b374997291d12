#pragma once

/// Answers of OpenAI's chat completions and completions, whole and as the events of a stream, from
/// the updates of a call's requests. Needs no HTTP.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "engine/chat/choice_tokens.h"
#include "engine/client.h"
#include "engine/http/openai_fields.h"
#include "engine/http/protocol_answer.h"

namespace slime::engine {

class ChatChoice;

/// Clients' names of weight versions.
struct VersionNamer {
  std::function<std::string(WeightVersion)> name;
  std::function<WeightVersion()> current;  // of an answer without tokens
};

/// The same as JSON texts of a stream's events, which have no names.
class OpenAiAnswer : public ProtocolAnswer {
 public:
  virtual std::vector<std::string> first_chunks() { return {}; }
  virtual json::object whole() const = 0;
  /// What is new since the last chunk.
  virtual std::vector<std::string> next_chunks() = 0;
  /// The chunk with the totals, where it was asked for.
  virtual std::optional<std::string> usage_chunk() const = 0;

  std::string body() final { return json_text(whole()); }
  std::vector<ServerEvent> begin() final;
  std::vector<ServerEvent> next() final;
  /// [DONE] comes after the totals, and not after an error.
  std::vector<ServerEvent> end() final;
  std::vector<ServerEvent> fail(const ApiError& error) final;
};

/// What both routes say of a choice next to its text.
struct ChoiceFacts {
  const ChoiceTokens& tokens;
  const GenerateUpdate& last;  // without its tokens
  std::span<const VersionRun> versions;

  WeightVersion last_version(const VersionNamer& versions) const;
};

/// The stop string or stop id that ended it, or null.
json::value matched_stop(const std::optional<FinishReason>& finish);
/// vLLM's: the same without ids that end every response.
json::value stop_reason(const std::optional<FinishReason>& finish,
                        std::span<const TokenId> stop_token_ids);
json::object meta_info(const ChoiceFacts& choice, const OpenAiForm& form, std::string version_name);
/// [{"start", "end", "version"}], places among the response's tokens.
json::array weight_versions(const ChoiceFacts& choice, const VersionNamer& namer);

struct UsageTotals {
  std::int64_t prompt = 0;
  std::int64_t cached = 0;
  std::int64_t completion = 0;
  std::int64_t reasoning = 0;
  json::object to_json() const;
};

}  // namespace slime::engine
