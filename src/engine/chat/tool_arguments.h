#pragma once

/// Arguments of past calls, in the form that the template takes.

#include "core/json.h"
#include "engine/chat/template_traits.h"

namespace slime::engine {

/// `given`: JSON as text, an object, or null for none. Text goes unchanged into a template that takes
/// text, so that the prompt has the tokens that were sampled. Text that is no JSON object is
/// {"_raw": text} where the template wants an object.
json::value arguments_for(const json::value& given, const TemplateTraits& traits);

}  // namespace slime::engine
