#pragma once

/// `slime chat-template`: a model directory's chat template on JSON lines.

#include <span>
#include <string>

namespace slime::cli {

/// {"messages": [...], "options": {...}} -> {"text": ..., "ids": [...]} or {"error": {"kind": ...,
/// "message": ...}}. A chat that the template does not accept is an answer, not a failure of the
/// command.
int chat_template(std::span<const std::string> arguments);

}  // namespace slime::cli
