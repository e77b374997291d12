#pragma once

/// Answer of /v1/responses, from the updates of its request.

#include <memory>

#include "engine/http/openai_answer.h"
#include "engine/http/protocol_answer.h"
#include "engine/http/responses/responses_request.h"

namespace slime::engine {

/// `call` outlives the answer; its requests may be gone.
std::unique_ptr<ProtocolAnswer> make_responses_answer(const ResponsesCall& call,
                                                      VersionNamer namer);

}  // namespace slime::engine
