#pragma once

/// Answer of /v1/messages, from the updates of its request.

#include <memory>

#include "engine/http/anthropic/anthropic_request.h"
#include "engine/http/openai_answer.h"
#include "engine/http/protocol_answer.h"

namespace slime::engine {

/// `call` outlives the answer; its requests may be gone.
std::unique_ptr<ProtocolAnswer> make_anthropic_answer(const AnthropicCall& call, VersionNamer namer,
                                                      std::string request_id);

}  // namespace slime::engine
