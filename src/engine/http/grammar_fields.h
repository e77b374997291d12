#pragma once

/// Fields in which clients ask for constrained decoding, next to the sampling parameters json_schema,
/// regex, ebnf and structural_tag:
///
///   response_format      {"type": "json_object"}, {"type": "json_schema", "json_schema": {"schema"}},
///                        {"type": "structural_tag", ...}            OpenAI's, SGLang's
///   structured_outputs   {"json" | "regex" | "choice" | "grammar" | "json_object" | "structural_tag"}
///   guided_json, guided_regex, guided_choice, guided_grammar        vLLM's
///
/// All become sampling parameters of the request, whose grammar_field says what the client called it.

#include <string_view>

#include "core/field_reader.h"
#include "engine/client.h"

namespace slime::engine {

/// Reads all of them. Two that ask for something are a problem which names both; so is one beside a
/// grammar that `request` has.
void read_grammar_fields(const FieldReader& fields, GenerateRequest& request);

/// vLLM's `structured_outputs` alone, of a protocol that has no other.
void read_structured_outputs(const FieldReader& fields, GenerateRequest& request);

/// {"type": "text" | "json_object" | "json_schema" | "structural_tag"}, as it stands under `name`. A
/// schema is a member `schema` of `format` or of its `json_schema`.
void read_output_format(const FieldReader& format, std::string_view name, const FieldReader& fields,
                        GenerateRequest& request);

}  // namespace slime::engine
