#pragma once

/// Reader of tokenizer.json, the file of the `tokenizers` library (version 1.0), with a BPE model.
///
/// "truncation" and "padding" are settings of a data loader, not of the vocabulary, and are not
/// applied; neither are the offset settings of the ByteLevel post-processor, since we return no
/// offsets.

#include <string>
#include <string_view>
#include <vector>

#include "core/field_reader.h"
#include "core/json.h"
#include "text/tokenizer/tokenizer_definition.h"

namespace slime::text {

/// Throws ConfigError, each line starting with `where` ("DIR/tokenizer.json"), for everything that
/// is missing, of a wrong type, out of range, or of a kind we do not know.
TokenizerDefinition read_tokenizer_json(const json::value& root, std::string_view where);

/// The parts with steps, sequences flattened (tokenizer_json_steps.cpp); an absent part has none.
std::vector<NormalizerStep> read_normalizer(const FieldReader& file);
std::vector<PreTokenizerStep> read_pre_tokenizer(const FieldReader& file);
std::vector<DecoderStep> read_decoder(const FieldReader& file);

/// An entry of "added_tokens" or of tokenizer_config.json's "added_tokens_decoder", without its id.
AddedToken read_added_token(const FieldReader& entry);

}  // namespace slime::text
