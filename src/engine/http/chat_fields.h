#pragma once

/// Fields that all chat protocols share: sampling, grammar, template, what the answer returns.
///
/// They are OpenAI's, SGLang's and vLLM's names, which are no fields of Responses and Messages, but
/// which training code sends there, too.

#include "core/field_reader.h"
#include "engine/chat/chat_request.h"
#include "engine/http/openai_fields.h"
#include "engine/http/served_model.h"

namespace slime::engine {

/// Reads them into the request and the answer's form. What a protocol has under another name is read
/// before: a field that is absent changes nothing.
void read_chat_fields(const FieldReader& fields, const ServedModel& model, OpenAiForm& form,
                      ChatRequest& request);

}  // namespace slime::engine
